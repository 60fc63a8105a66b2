// A stand-in of Porteiro's controller. It has the functions and the variables that the guide's edits use, and no more.

import DatabaseService from "../services/db.service.ts";
{{controllers/call.controller.ts:4}}

// What a route throws is a 500, as in Porteiro's.
const route = (handler: any) => (req: any, res: any) => handler(req, res).catch((error: any) =>
  res.status(500).json({ success: false, error: String(error) }));

const CallController = {
  startCall: route(async (req: any, res: any) => {
    const { apartmentNumber, doormanId, buildingId, fromUserId, clientVersion, schemaVersion } = req.body;
    const effectiveDoormanId = String(doormanId ?? fromUserId);
    const apartment = await DatabaseService.getApartmentByNumber(apartmentNumber, buildingId);
    const doorman = await DatabaseService.getDoormanProfile(effectiveDoormanId);
    const call = await DatabaseService.createIntercomCall(apartment.id, effectiveDoormanId);
    const callId = call.id;
    const channelName = `call-${callId}`;
    const residents = await DatabaseService.getResidentsByApartment(apartment.id);
    await DatabaseService.addCallParticipant({ call_id: callId, participant_id: effectiveDoormanId, participant_type: "doorman",
      status: "answered" });
    for (const resident of residents) {
      await DatabaseService.addCallParticipant({ call_id: callId, participant_id: resident.id, participant_type: "resident",
        status: "notified" });
    }
    const payloadVersion = schemaVersion ?? 1;
{{controllers/call.controller.ts:253-336}}
    res.status(201).json({
      success: true,
      data: {
        call: { id: callId },
        signaling: {
{{controllers/call.controller.ts:359}}
        },
        notificationsSent: totalPushNotificationsSent,
      },
      message: totalPushNotificationsSent > 0
{{controllers/call.controller.ts:380}}
        : "Nobody is rung.",
    });
  }),

  callDoorman: route(async (req: any, res: any) => {
    const { residentId, doormanId, clientVersion, schemaVersion } = req.body;
    const resident = await DatabaseService.getResidentProfile(residentId);
    const apartment = await DatabaseService.getResidentApartment(residentId);
    const call = await DatabaseService.createResidentIntercomCall(apartment.id, residentId);
    const callId = call.id;
    const channelName = `call-${callId}`;
    await DatabaseService.addCallParticipant({ call_id: callId, participant_id: residentId, participant_type: "resident",
      status: "answered" });
    await DatabaseService.addCallParticipant({ call_id: callId, participant_id: doormanId, participant_type: "doorman",
      status: "notified" });
    const payloadVersion = schemaVersion ?? 1;
{{controllers/call.controller.ts:975-1033}}
    res.status(201).json({ success: true, data: { call: { id: callId }, notificationsSent: totalPushNotificationsSent } });
  }),

  answerCall: route(async (req: any, res: any) => {
    const { callId } = req.params;
    const { userId } = req.body;
    await DatabaseService.updateCallStatus(callId, "answered");
{{controllers/call.controller.ts:431+}}
    await DatabaseService.updateCallParticipant(callId, userId, { status: "connected" });
    res.json({ success: true });
  }),

  declineCall: route(async (req: any, res: any) => {
    const { callId } = req.params;
    const { userId } = req.body;
    await DatabaseService.updateCallParticipant(callId, userId, { status: "declined" });
{{controllers/call.controller.ts:528+}}
    // Porteiro's own count has these two rules: it leaves out residents without a token in profiles.
    const counted = (await DatabaseService.getCallParticipants(callId)).filter((row) =>
      row.user_type === "resident" && (row.push_token || row.voip_push_token) && row.notification_enabled);
    if (counted.length < 2 || counted.every(({ status }) => status === "declined")) {
      await DatabaseService.updateCallStatus(callId, "ended");
    }
{{controllers/call.controller.ts:572+}}
    res.json({ success: true });
  }),

  endCall: route(async (req: any, res: any) => {
    const { callId } = req.params;
    await DatabaseService.updateCall(callId, { status: "ended" });
{{controllers/call.controller.ts:628+}}
    res.json({ success: true });
  }),
};

export default CallController;
