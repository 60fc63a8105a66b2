// A stand-in of Porteiro's server: its routes, and the guide's edits in the places in double braces.

import express from "express";
import CallController from "./controllers/call.controller.ts";
{{server.ts:15+}}

const app = express();
{{server.ts:40+}}
app.use(express.json());

app.post("/api/calls/start", CallController.startCall);
app.post("/api/calls/call-doorman", CallController.callDoorman);
app.post("/api/calls/:callId/answer", CallController.answerCall);
app.post("/api/calls/:callId/decline", CallController.declineCall);
app.post("/api/calls/:callId/end", CallController.endCall);

export default app;
