// Stands for server.js of the example: the same names and routes, with the page's edits at their places.
const express = require('express');
const Telnyx = require('telnyx');
const crypto = require('crypto');
require('dotenv').config();
{{server.js:10+}}

const app = express();
const client = new Telnyx({ apiKey: process.env.TELNYX_API_KEY });

// Telnyx signs the time and the bytes of the body.
function isTelnyx(body, headers) {
  const key = { key: Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), Buffer.from(process.env.TELNYX_PUBLIC_KEY, 'base64')]),
    format: 'der', type: 'spki' };
  return crypto.verify(null, Buffer.concat([Buffer.from(headers['telnyx-timestamp'] + '|'), body]), crypto.createPublicKey(key),
    Buffer.from(headers['telnyx-signature-ed25519'], 'base64'));
}

app.post('/webhooks/inbound-call', express.raw({ type: '*/*' }), (req, res) => {
  if (!isTelnyx(req.body, req.headers)) return res.sendStatus(401);
  const event = JSON.parse(req.body);
{{server.js:217-218}}
});
app.use(express.json());
{{server.js:219+}}

const PORT = process.env.PORT || 3000;
app.listen(PORT, () => console.log(`SIP routing server listening on port ${PORT}`));
