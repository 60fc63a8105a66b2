// A backend in the shape of Porteiro's: its routes, the names its controller uses, and in the places in double braces the
// page's own lines. Its tables are in memory; those of start-call.mjs are in Postgres.

import { randomUUID } from 'node:crypto';
import express from 'express';
import * as gateway from './push-gateway.mjs';
import { startCall } from './start-call.mjs';

const { residents: everybody } = JSON.parse(process.env.TABLES);
const calls = new Map();
const participants = new Map();

const DatabaseService = {
  updateCall: async (callId, change) => Object.assign(calls.get(callId), change),
  updateCallParticipant: async (callId, userId, { status }) => participants.get(callId).set(userId, status),
  updateCallStatus: async (callId, status) => Object.assign(calls.get(callId), { status }),
};

const app = express();
app.use(express.json());

app.post('/api/calls/start', async (req, res) => {
  const { apartmentNumber, doormanId, clientVersion } = req.body;
  const effectiveDoormanId = doormanId;
  const doorman = { full_name: req.body.doormanName ?? null };
  const apartment = { building_name: 'Edifício Aurora' };
  const residents = everybody;
  const payloadVersion = 1;
  const callId = req.body.callId ?? randomUUID();
  const channelName = `call-${callId}`;
  calls.set(callId, { id: callId, status: 'calling' });
  participants.set(callId, new Map(residents.map((resident) => [resident.id, 'notified'])));
{{start.js}}
  res.status(201).json({ callId, notificationsSent: totalPushNotificationsSent });
});

app.post('/api/calls/:callId/answer', async (req, res) => {
  const { callId } = req.params;
  const { userId } = req.body;
{{answer.js}}
  res.json({ call: calls.get(callId) });
});

app.post('/api/calls/:callId/decline', async (req, res) => {
  const { callId } = req.params;
  const { userId } = req.body;
{{decline.js}}
  res.json({ call: calls.get(callId) });
});

app.post('/api/calls/:callId/end', async (req, res) => {
  const { callId } = req.params;
  const endTime = new Date();
  const duration = 1;
{{end.js}}
  res.json({ call: calls.get(callId) });
});

// The page's route with a transaction: its queries are the backend's own.
globalThis.createCall = async (client, body) => {
  await client.query('insert into calls (id, doorman) values ($1, $2)', [body.id, body.doormanId]);
  return { id: body.id, apartmentId: 101, doormanId: body.doormanId, doormanName: null, apartment: 101,
    building: null, channel: `call-${body.id}` };
};
globalThis.findResidents = async (client) => {
  const { rows } = await client.query('select id, push_token, voip_push_token, platform, notification_enabled from profiles');
  return rows;
};
app.post('/api/transactions/start', (req, res, next) => startCall(req, res).catch(next));

app.use((error, req, res, next) => res.status(500).json({ code: error.code, error: error.message }));

const server = app.listen(0, '127.0.0.1', () => console.log(`listening on ${server.address().port}`));
process.on('SIGTERM', () => process.exit(0));
