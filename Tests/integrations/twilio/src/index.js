// Stands for index.js of the quickstart: the same names and routes, with the page's edits at their places.
require('dotenv').load();
const express = require('express');
const bodyParser = require('body-parser');
const { tokenGenerator, makeCall, placeCall, incoming, welcome } = require('./src/server.js');
{{index.js:12+}}

const app = express();
app.use(bodyParser.urlencoded({ extended: false }));
{{index.js:19+}}

for (const method of ['get', 'post']) {
  app[method]('/', (request, response) => response.send(welcome()));
  app[method]('/accessToken', tokenGenerator);
  app[method]('/makeCall', makeCall);
  app[method]('/placeCall', placeCall);
  app[method]('/incoming', (request, response) => response.send(incoming()));
}
app.listen(process.env.PORT, () => console.log('Express server running on *:' + process.env.PORT));
