// Runs a backend of Porteiro's: its own files or the stand-in, with the guide's edits. Beside it, the guide's route with a
// transaction in Postgres, and for the test the tables in memory.

import express from 'express';
import { tables } from './packages.mjs';
import backend from './src/server.ts';
import { startCall } from './start-call.mjs';

// The hour that a dead token waits passes at once.
const wait = globalThis.setTimeout;
globalThis.setTimeout = (what, milliseconds, ...values) => wait(what, milliseconds >= 3_600_000 ? 0 : milliseconds, ...values);

globalThis.createCall = async (client, body) => {
  await client.query('insert into intercom_calls (id, doorman) values ($1, $2)', [body.id, body.doormanId]);
  return { id: body.id, apartmentId: 101, doormanId: body.doormanId, doormanName: null, apartment: 101,
    building: null, channel: `call-${body.id}` };
};
globalThis.findResidents = async (client) => {
  const { rows } = await client.query('select id, push_token, voip_push_token, platform, notification_enabled from profiles');
  return rows;
};

const app = express();
app.post('/api/transactions/start', express.json(), (req, res, next) => startCall(req, res).catch(next));
app.get('/tables', (req, res) => res.json(tables));
app.use('/api/transactions', (error, req, res, next) => res.status(500).json({ code: error.code, error: error.message }));
app.use(backend);

app.listen(Number(process.env.PORT), '127.0.0.1', () => console.log('listening'));
process.on('SIGTERM', () => process.exit(0));
