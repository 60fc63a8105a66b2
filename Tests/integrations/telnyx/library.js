// What the backend uses of Telnyx's library, version 6. Commands are written to the log.
module.exports = class Telnyx {
  constructor() {
    const command = (name) => async (leg, options) => console.log(`${name} ${leg} ${JSON.stringify(options)}`);
    this.calls = { actions: { transfer: command('transfer'), reject: command('reject'), hangup: command('hangup') } };
  }
};
