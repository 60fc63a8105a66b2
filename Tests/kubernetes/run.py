#!/usr/bin/python3
"""Checks deploy/kubernetes: the manifests against the API's schemas, and what they say against the program.

  PUSH_GATEWAY=.build/debug/push-gateway Tests/kubernetes/run.py      ends with "N passed, N failed"; non-zero when any failed
  Tests/kubernetes/run.py --write                                     copies the alerts into monitoring.yaml

Manifests are rendered by `kubectl kustomize` if there is kubectl, else read file by file. Schemas are those of kubernetes-validate,
which pip installs into .local/kubernetes, once; without a network that one check is skipped, and says so.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
MONITORING = FOLDER / "monitoring.yaml"
TOOLS = ROOT / ".local/kubernetes"
VALIDATOR = "kubernetes-validate==1.37.0"
API_VERSION = "1.32"
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}
"""Of the Prometheus Operator, whose schemas kubernetes-validate does not have."""

passed = failed = 0


def check(what, is_good, why=""):
    global passed, failed
    passed, failed = passed + bool(is_good), failed + (not is_good)
    print(f"ok - {what}" if is_good else f"not ok - {what}: {str(why)[:1500]}", flush=True)


def rendered():
    """Every object, as kustomize gives it; the files alone without kubectl."""
    if shutil.which("kubectl"):
        done = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True)
        check("kubectl kustomize renders the base", done.returncode == 0, done.stderr)
        return [each for each in yaml.safe_load_all(done.stdout) if each]
    print("# there is no kubectl: the files are read one by one")
    resources = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    return [each for name in resources for each in yaml.safe_load_all((FOLDER / name).read_text())]


def schemas(objects):
    python = TOOLS / "bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import kubernetes_validate"], capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", TOOLS], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", VALIDATOR], capture_output=True, text=True)
        if done.returncode:
            print(f"# skipped: pip cannot install {VALIDATOR}: {done.stderr.strip().splitlines()[-1:]}")
            return
    program = ("import json, sys, kubernetes_validate as k\n"
               "for each in json.load(sys.stdin):\n"
               " try: k.validate(each, sys.argv[1], strict=True)\n"
               " except Exception as error: print(each['kind'], each['metadata']['name'], str(error).splitlines()[0])")

    def faults(objects):
        done = subprocess.run([python, "-c", program, API_VERSION], input=json.dumps(objects), capture_output=True, text=True)
        return done.stdout + done.stderr

    known = [each for each in objects if each["kind"] not in OPERATOR_KINDS]
    found = faults(known)
    check(f"every manifest fits the schemas of Kubernetes {API_VERSION}", found == "", found)
    wrong = json.loads(json.dumps(next(each for each in known if each["kind"] == "Deployment")))
    wrong["spec"]["template"]["spec"]["containers"][0]["readinessProbes"] = {}
    check("a key that Kubernetes does not know is noticed", "readinessProbes" in faults([wrong]), faults([wrong]))


def find(objects, kind, name=None):
    return next(each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"]))


def program(gateway, objects):
    """The containers' arguments, the configuration, and ports and paths against the program."""
    deployment, job = find(objects, "Deployment"), find(objects, "Job")
    pods = [each["spec"]["template"]["spec"] for each in (deployment, job)]
    (container,), (migration,) = (pod["containers"] for pod in pods)
    for words in (container["args"], migration["args"]):
        command = json.loads(run(gateway, "--experimental-dump-help"))["command"]
        found = next((each for each in command["subcommands"] if each["commandName"] == words[0]), None)
        options = {f"--{name['name']}" for each in (found or {}).get("arguments", []) for name in each.get("names") or []}
        unknown = [word for word in words if word.startswith("--") and word not in options]
        check(f"the program has the command {' '.join(words)}", found and not unknown, unknown)

    configuration = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        keys = work / "keys"
        keys.mkdir()
        (work / "gateway.yaml").write_text((FOLDER / "gateway.yaml").read_text())
        work.joinpath("gateway.yaml").chmod(0o600)
        for file, digits in (("metrics-key", "0123456789abcdef"), ("ops-key", "fedcba9876543210")):
            (keys / file).write_text(digits * 4)
        key = subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], capture_output=True,
                             text=True, check=True).stdout
        rsa = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA"], capture_output=True, text=True, check=True).stdout
        (keys / "apns-key.p8").write_text(key)
        (keys / "fcm-service-account.json").write_text(json.dumps({
            "type": "service_account", "project_id": "p", "private_key": rsa, "private_key_id": "k", "client_email": "a@b.example",
            "token_uri": "https://oauth2.googleapis.com/token"}))
        for file in keys.iterdir():
            file.chmod(0o440)
        done = subprocess.run([gateway, "check-config", "--config", work / "gateway.yaml"], capture_output=True, text=True, env={
            **os.environ, "DATABASE_URL": "postgres://u@db/push"})
        check("check-config accepts gateway.yaml, with files of mode 0440", done.returncode == 0, done.stdout + done.stderr)
        (keys / "ops-key").chmod(0o444)
        done = subprocess.run([gateway, "check-config", "--config", work / "gateway.yaml"], capture_output=True, text=True, env={
            **os.environ, "DATABASE_URL": "postgres://u@db/push"})
        check("… and not with Kubernetes' default mode", done.returncode and "dashboard.ops_key_file: " in done.stdout, done.stdout)

    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    listens = {name: int(configuration[key]["listen"].rpartition(":")[2]) for name, key in (("ops", "http"), ("api", "api"))}
    check("the ports are those that gateway.yaml listens on", ports == listens, ports)
    named = {port["targetPort"] for each in objects if each["kind"] == "Service" for port in each["spec"]["ports"]}
    named |= {endpoint["port"] for endpoint in find(objects, "ServiceMonitor")["spec"]["endpoints"]}
    named |= {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    check("services, probes and Prometheus name these ports", named <= ports.keys(), named)
    sources = "\n".join(path.read_text() for path in (ROOT / "Sources/HTTPSurface").rglob("*.swift"))
    paths = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")} | {"/metrics"}
    check("the program answers the paths of the probes", all(f'"{path[1:]}"' in sources for path in paths), paths)
    check("it has the time to drain", pods[0]["terminationGracePeriodSeconds"]
          >= configuration["shutdown"]["drain_seconds"] + int(container["lifecycle"]["preStop"]["exec"]["command"][1]) + 5)
    modes = {volume["name"]: volume["secret"]["defaultMode"] for volume in pods[0]["volumes"]}
    check("no file of a secret can be read by all users", all(mode & 0o007 == 0 for mode in modes.values()), modes)
    check("the files' group is that of the user", pods[0]["securityContext"]["fsGroup"] == pods[0]["securityContext"]["runAsGroup"])
    image = json.loads((ROOT / "deploy/image.json").read_text())["config"]
    for pod in pods:
        context, inner = pod["securityContext"], pod["containers"][0]["securityContext"]
        check("the user is the image's", f"{context['runAsUser']}:{context['runAsGroup']}" == image["User"], context)
        check("it is restricted as Kubernetes' standard «restricted» asks", context["runAsNonRoot"]
              and context["seccompProfile"]["type"] == "RuntimeDefault" and inner["capabilities"] == {"drop": ["ALL"]}
              and not inner["allowPrivilegeEscalation"] and inner["readOnlyRootFilesystem"]
              and not pod["automountServiceAccountToken"], inner)
    version = re.search(r'current = "(.*)"', (ROOT / "Sources/Settings/GatewayVersion.swift").read_text())[1]
    tags = {pod["containers"][0]["image"].rpartition(":")[2] for pod in pods}
    check("the image is this release's", tags == {version} or not shutil.which("kubectl"), tags)


def selects(selector, labels):
    """Whether a selector fits a pod; an empty one fits every pod."""
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        each["operator"] == "In" and labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions") or ())


def monitoring(objects):
    labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for each in objects:
        if each["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            selector = each["spec"].get("selector") or each["spec"]["podSelector"]
            own = {**labels, "app.kubernetes.io/name": "push-gateway"}  # which kustomize adds
            check(f"the {each['kind']} selects the gateways", selects(selector, own), selector)
            check(f"the {each['kind']} selects no other pod", not selects(selector, {"app.kubernetes.io/component": "database"}), selector)
        if each["kind"] == "NetworkPolicy":
            peers = {rule["ports"][0]["port"]: rule["from"][0]["podSelector"] for rule in each["spec"]["ingress"]}
            others = {"app.kubernetes.io/name": "prometheus"}
            check("any pod of the namespace reaches the API", selects(peers["api"], others), peers["api"])
            check("metrics are for pods with a label", selects(peers["ops"], {**others, "push-gateway/ops": "true"})
                  and not selects(peers["ops"], others), peers["ops"])
        if each["kind"] == "Service":
            check(f"the Service {each['metadata']['name']} selects the gateways", each["spec"]["selector"].items() <= labels.items())
    wanted = find(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    found = [each["metadata"]["name"] for each in objects
             if each["kind"] == "Service" and wanted <= each["metadata"].get("labels", {}).items()]
    check("Prometheus scrapes one Service", found == ["push-gateway"], found)
    own = yaml.safe_load(ALERTS.read_text())["groups"]
    check("the alerts are those of deploy/prometheus (Tests/kubernetes/run.py --write)",
          find(objects, "PrometheusRule")["spec"]["groups"] == own)
    external = find(objects, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["external"]["metric"]
    source = (ROOT / "Sources/HTTPSurface/Metrics/StateFamilies.swift").read_text()
    check("the autoscaler's metric is one of the program", f'"{external["name"]}"' in source, external)
    kinds = (ROOT / "Sources/PushModel/PushKind.swift").read_text()
    check("and so is its label", external["selector"]["matchLabels"]["kind"] in kinds, external)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write():
    text, alerts = MONITORING.read_text(), ALERTS.read_text()
    head = text[:text.index("  groups:\n")]
    groups = alerts[alerts.index("groups:\n"):].rstrip("\n").split("\n")
    MONITORING.write_text(head + "\n".join(f"  {line}" if line else line for line in groups) + "\n")


def main():
    if sys.argv[1:] == ["--write"]:
        write()
        return 0
    if len(sys.argv) > 1:
        raise SystemExit(__doc__)
    gateway = Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build/debug/push-gateway")).resolve()
    objects = rendered()
    schemas(objects)
    program(gateway, objects)
    monitoring(objects)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
