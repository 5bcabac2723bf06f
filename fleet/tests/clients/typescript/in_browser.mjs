// every_operation.mjs on a page of another origin, in a headless Chromium; its report as the last line, with the paths
// for which the browser asked the server's permission before it let the page call.
//
//   node in_browser.mjs URL KEY_ID KEY ORGANIZATION OUTSIDER_EMAIL      CHROMIUM names the browser

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';

const [url, keyId, key, org, outsider] = process.argv.slice(2);
const here = new URL('.', import.meta.url).pathname;
const PAGE = `<!doctype html><script type="module">
import * as VIAM from '/sdk.js';
import { run } from '/every_operation.mjs';
try {
  say(JSON.stringify(await run(VIAM, ${JSON.stringify({ url, keyId, key, org, outsider })})));
} catch (why) {
  say(JSON.stringify({ why: String(why.stack ?? why) }));
}
</script>`;
const FILES = {
  '/': ['text/html', PAGE],
  '/sdk.js': ['text/javascript', readFileSync(join(here, 'node_modules/@viamrobotics/sdk/dist/main.es.js'))],
  '/every_operation.mjs': ['text/javascript', readFileSync(join(here, 'every_operation.mjs'))],
};
const site = createServer((request, answer) => {
  const [type, body] = FILES[request.url] ?? [];
  answer.writeHead(type ? 200 : 404, { 'content-type': type ?? 'text/plain' }).end(body ?? '');
});
await new Promise((go) => site.listen(0, '127.0.0.1', go));

// Beside this file, in the folder that the test removes.
const profile = mkdtempSync(join(here, 'profile-'));
const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps', '--disable-extensions',
  `--user-data-dir=${profile}`];
// A group of its own: its many processes end together.
const stdio = ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'];
const browser = spawn(process.env.CHROMIUM ?? 'chromium', flags, { stdio, detached: true });
const gone = new Promise((resolve) => browser.on('exit', resolve));
const waiting = new Map();
let number = 0;
const preflights = new Set();
let report;
const reported = new Promise((resolve) => { report = resolve; });
setTimeout(() => report({ why: 'not within 5 minutes' }), 300_000).unref();
gone.then((code) => report({ why: `the browser ended (${code})` }));

function heard({ id, method, params, result, error }) {
  if (id !== undefined) {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(error.message)); else resolve(result);
  } else if (method === 'Network.requestWillBeSent' && params.request.method === 'OPTIONS') {
    preflights.add(new URL(params.request.url).pathname);
  } else if (method === 'Runtime.bindingCalled') {
    report(JSON.parse(params.payload));
  }
}

let rest = '';
browser.stdio[4].setEncoding('utf8').on('data', (text) => {
  const messages = (rest + text).split('\0');
  rest = messages.pop();
  for (const message of messages) heard(JSON.parse(message));
});

function call(method, params = {}, sessionId = undefined) {
  const id = (number += 1);
  browser.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

let answer;
try {
  const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true });
  await call('Network.enable', {}, sessionId);
  await call('Runtime.enable', {}, sessionId);
  await call('Runtime.addBinding', { name: 'say' }, sessionId);
  await call('Page.navigate', { url: `http://127.0.0.1:${site.address().port}/` }, sessionId);
  answer = await reported;
} finally {
  try {
    process.kill(-browser.pid, 'SIGKILL');
  } catch { /* it has ended */ }
  await gone;
}
if (answer.why) {
  console.error(answer.why);
  process.exit(1);
}
console.log(JSON.stringify({ ...answer, preflights: [...preflights] }));
process.exit(0);
