// Stands for src/server.js of the quickstart: the same names, with the page's edits at their places.
const { AccessToken } = require('twilio').jwt;
const { VoiceResponse } = require('twilio').twiml;
const callerId = 'client:quick_start';
{{src/server.js:9+}}

const given = (request, name) => (request.method === 'POST' ? request.body : request.query)[name];
const isNumber = (to) => !Number.isNaN(Number(to.replace(/^\+/, '')));

exports.tokenGenerator = (request, response) => {
  const identity = given(request, 'identity') || 'alice';
  const isAndroid = given(request, 'os') === 'android';
  const accountSid = process.env.ACCOUNT_SID, apiKey = process.env.API_KEY, apiSecret = process.env.API_KEY_SECRET;
{{src/server.js:66}}
  token.addGrant(new AccessToken.VoiceGrant({
    outgoingApplicationSid: process.env.APP_SID,
    pushCredentialSid: isAndroid ? process.env.ANDROID_PUSH_CREDENTIAL_SID : process.env.IOS_PUSH_CREDENTIAL_SID,
  }));
  response.send(token.toJwt());
};

exports.makeCall = (request, response) => {
  const to = given(request, 'to');
  const voiceResponse = new VoiceResponse();
  if (isNumber(to)) {
    voiceResponse.dial({ callerId: '1234567890' }).number(to);
  } else {
    const dial = voiceResponse.dial({ callerId: given(request, 'from') || callerId });
{{src/server.js:114}}
  }
  response.send(voiceResponse.toString());
};

exports.placeCall = async (request, response) => {
  const to = given(request, 'to');
  const url = request.protocol + '://' + request.get('host') + '/incoming';
  const { calls } = require('twilio')(process.env.API_KEY, process.env.API_KEY_SECRET, {}).api;
  const call = await (to ? calls.create({
    url, to: 'client:' + to,
{{src/server.js:163}}
  }) : calls.create({
    url, to: 'client:alice',
{{src/server.js:149}}
  }));
  response.send(call.sid);
};

exports.incoming = exports.welcome = () => new VoiceResponse().toString();
