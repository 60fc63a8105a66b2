// What the quickstart uses of Twilio's library, version 5.11.2 or later. A call over REST is written to the log.
class AccessToken {
  constructor(accountSid, apiKey, apiSecret, options) {
    if (!options || !options.identity) throw new Error('identity is required to be specified in options');
    this.identity = options.identity;
    this.grants = [];
  }
  addGrant(grant) { this.grants.push(grant); }
  toJwt() { return JSON.stringify({ identity: this.identity, grants: this.grants }); }
}
AccessToken.VoiceGrant = class { constructor(options) { Object.assign(this, options); } };

const escaped = (value) => String(value).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

class Element {
  constructor(name, attributes = {}, text = '') { Object.assign(this, { name, attributes, text, children: [] }); }
  add(...values) {
    this.children.push(new Element(...values));
    return this.children[this.children.length - 1];
  }
  say(text) { return this.add('Say', {}, text); }
  dial(attributes) { return this.add('Dial', attributes); }
  number(text) { return this.add('Number', {}, text); }
  client(attributes, identity) {
    return identity === undefined ? this.add('Client', {}, attributes) : this.add('Client', attributes, identity);
  }
  toString() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => (
      ` ${name}="${escaped(Array.isArray(value) ? value.join(' ') : value)}"`));
    return `<${this.name}${attributes.join('')}>${escaped(this.text)}${this.children.join('')}</${this.name}>`;
  }
}

module.exports = () => ({ api: { calls: { create: async (options) => {
  console.log('calls.create ' + JSON.stringify(options));
  return { sid: 'CA-placed' };
} } } });
module.exports.jwt = { AccessToken };
module.exports.twiml = { VoiceResponse: class extends Element { constructor() { super('Response'); } } };
