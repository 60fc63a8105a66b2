#!/bin/sh
# A private CA and a server certificate for localhost and 127.0.0.1, for tests, the demo and load tests. Not for production.
#
# usage: certificates.sh DIRECTORY
# Writes ca.pem, ca.key, server.pem (chain) and server.key there. Does nothing if they exist and are valid for another day.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 64; }
mkdir -p "$1"
cd "$1"

if [ -s ca.pem ] && [ -s server.key ] && openssl x509 -checkend 86400 -noout -in server.pem >/dev/null 2>&1; then
  exit 0
fi

umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

openssl ecparam -name prime256v1 -genkey -noout -out "$work/ca.key"
openssl req -x509 -new -key "$work/ca.key" -sha256 -days 3650 -subj "/CN=push-gateway test CA" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$work/ca.pem"

openssl ecparam -name prime256v1 -genkey -noout -out "$work/server.key"
openssl req -new -key "$work/server.key" -subj "/CN=localhost" -out "$work/server.csr"
cat >"$work/server.ext" <<EXT
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1
EXT
openssl x509 -req -in "$work/server.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial -sha256 -days 825 \
  -extfile "$work/server.ext" -out "$work/server.crt" 2>/dev/null
cat "$work/server.crt" "$work/ca.pem" >"$work/server.pem"

# server.pem last: a process that waits for it then finds all the other files.
for file in ca.key ca.pem server.key server.pem; do
  mv "$work/$file" "$file"
done
chmod 644 ca.pem server.pem
