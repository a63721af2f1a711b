// The page of `jaguar serve --web`: connects and prepares as soon as it is open, so that an answer comes soon after a picture.

import { Client } from './client/jaguar.js';

const $ = (id) => document.getElementById(id);
const WAIT = 3600;
const url = new URL('/', location.href);
url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
const model = new URLSearchParams(location.search).get('model');

let client = null;
let picture = null;
let asking = false;
let token = '';
let stage = null;
let since = 0;
let share = 0;
let noise = null;

// What was chosen of keeping hints, remembered where the browser remembers anything.
const KEEP = 'keep-hints';
const remembered = (work) => {
  try {
    return work(localStorage);
  } catch {
    return null;
  }
};
$('keep').checked = remembered((store) => store.getItem(KEEP)) !== null;

// ---- Words and figures ----

const size = (bytes) => bytes < 1e3 ? `${Math.round(bytes)} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
const seconds = (s) => s < 10 ? `${s.toFixed(1)} s` : s < 90 ? `${Math.round(s)} s` : `${Math.round(s / 60)} min`;
const say = (text) => { if ($('status').textContent !== text) $('status').textContent = text; };

function begin(name) {
  const order = ['connect', 'prepare', 'ask'];
  const now = performance.now();
  for (const item of document.querySelectorAll('#stages li')) {
    const [at, turn] = [order.indexOf(item.dataset.stage), order.indexOf(name)];
    if (item.dataset.stage === stage && name) item.querySelector('.took').textContent = seconds((now - since) / 1e3);
    if (at > turn && turn >= 0) item.querySelector('.took').textContent = '';
    item.className = name === null ? item.className : at < turn ? 'done' : at === turn ? 'now' : '';
    item.toggleAttribute('aria-current', at === turn);
  }
  [stage, since, share] = [name, now, 0];
  $('bar').value = 0;
}

function finish() {
  const item = document.querySelector(`#stages li[data-stage="${stage}"]`);
  item.className = 'done';
  item.querySelector('.took').textContent = seconds((performance.now() - since) / 1e3);
  $('bar').value = 1;
  stage = null;
}

const PROBLEMS = {
  unsupported: ['This browser cannot do it here', (text) => `${text}.`],
  connection: ['The connection was lost', (text) => `${text}. Your picture is still here, and was not sent. Check the network, then try again.`],
  busy: ['The server is busy', (text) => `${text}. Try again in a while.`],
  aborted: ['The server does not go on', (text) => `${text}.`],
  peer: ['The server and this page do not understand each other', (text) => `${text}. Load the page again.`],
  memory: ['There is not enough memory', () => 'The browser gives this page no more memory. Close other tabs, then try again.'],
  internal: ['Something went wrong in this page', (text) => `${text}. Load the page again.`],
};

function fail(error) {
  const [title, words] = PROBLEMS[error.kind] ?? PROBLEMS.internal;
  const text = String(error.message ?? error).replace(/\.$/, '');
  $('problem-title').textContent = title;
  $('problem-text').textContent = words(text[0].toUpperCase() + text.slice(1));
  $('token-form').hidden = !/token/i.test(text);
  $('problem').hidden = false;
  $('ask').disabled = true;
  asking = false;
  stage = null;
  say('Stopped.');
}

function refusePicture(text) {
  $('picture-problem').textContent = text;
  $('picture-problem').hidden = !text;
}

// ---- The session ----

async function start() {
  $('problem').hidden = true;
  client?.close();
  client = null;
  try {
    begin('connect');
    say('Loading the program, and connecting …');
    const queued = ({ detail: { place, seconds: left } }) =>
      say(`The server is busy. You are number ${place} in its line; your turn may come in ${seconds(left)}.`);
    const hints = $('keep').checked ? 'keep' : 'none';
    if (hints === 'none') await Client.forgetHints();
    client = await Client.connect(url, { token, model, wait: WAIT, hints, onqueued: queued });
    client.addEventListener('progress', ({ detail }) => { share = detail.share; });
    client.addEventListener('sent', ({ detail }) => draw(detail));
    const mine = client;
    client.addEventListener('closed', ({ detail }) => { if (mine === client && !asking) fail(detail); });
    showModel(client.model);
    if (picture) await choose(picture);
    await prepare();
  } catch (error) {
    fail(error);
  }
}

async function prepare() {
  begin('prepare');
  const first = $('answer').hidden;
  say(first ? 'Preparing. This needs no picture, so choose one meanwhile.' : 'Getting ready for the next picture. Choose it meanwhile.');
  await client.prepare();
  finish();
  say(!picture ? 'Ready. Choose a picture.' : first ? 'Ready: the answer to this picture takes a moment.' : 'Ready for another picture, or the same again.');
  update();
}

async function ask() {
  asking = true;
  update();
  const mine = picture;
  try {
    begin('ask');
    say('Asking. The server computes on numbers that look random.');
    noise = null;
    const before = client.traffic;
    const answer = await client.predict(mine);
    finish();
    showAnswer(answer, before);
    asking = false;
    update();
    await prepare();
  } catch (error) {
    asking = false;
    if (error.kind === 'input') {
      refusePicture(error.message);
      stage = null;
      say('This picture cannot be used. Choose another one.');
    } else {
      fail(error);
    }
  }
}

const update = () => { $('ask').disabled = asking || !picture || !client || client.closed || !client.prepared; };

// ---- What is shown ----

function showModel(card) {
  const [channels, rows, columns] = card.shape;
  const entries = [
    ['Name', card.name],
    ['Fingerprint', card.id.slice(0, 16)],
    ['Classes', card.classes.toLocaleString('en')],
    ['Sees', `${columns} × ${rows} pixels, ${channels === 1 ? 'grey' : 'in colour'}`],
    ['You learn', card.label_only ? 'the most likely class' : 'how likely each class is'],
    ['Once on a connection', size(card.hint_bytes)],
    ['Each answer, before the picture', size(card.offline_bytes)],
    ['Each answer, with the picture', size(card.online_bytes)],
  ];
  $('model').replaceChildren(...entries.map(([term, text]) => {
    const group = document.createElement('div'), dt = document.createElement('dt'), dd = document.createElement('dd');
    [dt.textContent, dd.textContent] = [term, text];
    group.append(dt, dd);
    return group;
  }));
  $('keep-text').textContent = `Keep the ${size(card.hint_bytes)} that come once on a connection in this browser, from the next connection ` +
    'on: later visits begin sooner. The server recognises this browser then.';
  $('keep-hint').hidden = card.hint_bytes === 0;
}

function put(canvas, image) {
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').putImageData(image, 0, 0);
}

async function show(file) {
  const seen = await client.look(file);
  put($('seen'), seen);
  put($('yours'), seen);
  $('seen-text').textContent = `What the network sees: ${seen.width} × ${seen.height} pixels`;
  $('shown').hidden = false;
  $('empty').hidden = true;
}

// Bytes that were sent, as pixels.
function draw(bytes) {
  if (!asking) return;
  const canvas = $('theirs');
  if (!noise) {
    [canvas.width, canvas.height] = [$('yours').width || 128, $('yours').height || 128];
    noise = { image: new ImageData(canvas.width, canvas.height), at: 0 };
  }
  const { data } = noise.image;
  for (const byte of bytes) {
    if (noise.at >= data.length) noise.at = 0;
    data[noise.at++] = byte;
    if (noise.at % 4 === 3) data[noise.at++] = 255;
  }
  canvas.getContext('2d').putImageData(noise.image, 0, 0);
}

function showAnswer(answer, before) {
  $('best').textContent = answer.name;
  $('bars').replaceChildren(...answer.top.map(({ name, probability }) => {
    const item = document.createElement('li'), row = document.createElement('div'), bar = document.createElement('progress');
    row.className = 'row';
    const [label, percent] = [document.createElement('span'), document.createElement('span')];
    [label.textContent, percent.textContent] = [name, `${(100 * probability).toFixed(1)} %`];
    row.append(label, percent);
    bar.value = probability;
    bar.setAttribute('aria-label', name);
    item.append(row, bar);
    return item;
  }));
  $('warning').textContent = answer.warning ? `The picture is unlike those that the model was made for: ${answer.warning}.` : '';
  $('warning').hidden = !answer.warning;
  const sent = client.traffic.sent - before.sent;
  $('took').textContent = `${seconds(answer.seconds)} from the picture to the answer.`;
  $('saw-text').textContent = `For this answer the server got ${size(sent)}. The picture on the right is a part of it, a byte for a ` +
    'colour. The same picture sent again looks different each time.';
  [$('no-answer').hidden, $('answer').hidden] = [true, false];
  $('best').focus({ preventScroll: innerWidth > 740 });
}

setInterval(() => {
  if (client) {
    const { sent, received } = client.traffic;
    [$('sent').textContent, $('received').textContent] = [size(sent), size(received)];
  }
  if (!stage) return;
  const elapsed = (performance.now() - since) / 1e3;
  $('bar').value = share;
  const left = share > 0.04 && elapsed > 0.5 ? `${seconds(elapsed * (1 - share) / share)} left` : seconds(elapsed);
  const took = document.querySelector(`#stages li[data-stage="${stage}"] .took`);
  if (took) took.textContent = left;
}, 200);

// ---- Choosing ----

async function choose(file) {
  if (!file) return;
  refusePicture('');
  try {
    // (The network says how it sees pictures.)
    if (client?.model) await show(file);
    picture = file;
    $('no-answer').hidden = false;
    $('answer').hidden = true;
    if (client?.prepared && !asking) say('Ready: the answer to this picture takes a moment.');
  } catch (error) {
    picture = null;
    refusePicture(`This picture cannot be used: ${error.message ?? error}.`);
  }
  update();
}

for (const id of ['file', 'camera']) {
  $(id).addEventListener('change', ({ target }) => { choose(target.files[0]); target.value = ''; });
}
for (const name of ['dragover', 'dragleave', 'drop']) {
  addEventListener(name, (event) => {
    event.preventDefault();
    $('drop').classList.toggle('over', name === 'dragover');
    if (name === 'drop') choose(event.dataTransfer.files[0]);
  });
}
addEventListener('paste', (event) => choose([...event.clipboardData.files][0]));
$('ask').addEventListener('click', ask);
$('keep').addEventListener('change', ({ target }) => {
  remembered((store) => (target.checked ? store.setItem(KEEP, '1') : store.removeItem(KEEP)));
  // (The session may have the file open: it ends, and the page that comes removes the file.)
  if (!target.checked) location.reload();
});
$('again').addEventListener('click', () => { token = $('token').value; start(); });
$('token-form').addEventListener('submit', (event) => { event.preventDefault(); $('again').click(); });
start();
