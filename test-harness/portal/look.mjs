// A browser of a phone's size at the page behind the hotspot: what a person sees before, after a wrong and after a right
// password; the same without JavaScript; the same with nothing but a keyboard. Saves what it saw, and fails when something
// cannot be done, is wider than the screen, has no name for a screen reader, breaks the page's own policy or asks for
// anything elsewhere.
//
//   node look.mjs PROGRAM FOLDER      PROGRAM is test-harness' example `portal`; CHROMIUM may name the browser

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [program, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const CREDENTIALS = '{"cloud": {"app_address": "https://fleet.example.com", "id": "p-1", "secret": "s"}}';
const LIMIT = 60_000;
let failures = 0;

function check(what, holds, seen = '') {
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}${holds ? '' : ` ${seen}`}`);
  failures += holds ? 0 : 1;
}

async function until(what, probe) {
  for (const end = Date.now() + LIMIT; Date.now() < end; await new Promise((go) => setTimeout(go, 50))) {
    try {
      const found = await probe();
      if (found) return found;
    } catch { /* a page that is being loaded */ }
  }
  throw new Error(`${what}: not within ${LIMIT / 1000} s`);
}

/** A played device; resolves with its address. */
async function device(...options) {
  const child = spawn(program, ['--port', '0', '--takes', '1500', ...options], { stdio: ['ignore', 'pipe', 'inherit'] });
  const said = [];
  child.stdout.on('data', (text) => said.push(text));
  const url = await until('a device', () => said.join('').match(/http:\S+/)?.[0]);
  return { url, said: () => said.join(''), end: () => child.kill() };
}

/** What a phone's own question is answered with. */
function asked(url, path, host) {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const headers = { host, 'user-agent': 'CaptiveNetworkSupport-481' };
    request({ hostname, port, path, headers, agent: false }, (answer) => {
      let body = '';
      answer.on('data', (more) => { body += more; }).on('end', () => resolve(`${answer.statusCode} ${body}`));
    }).on('error', reject).end();
  });
}

class Browser {
  constructor() {
    this.profile = mkdtempSync(join(tmpdir(), 'portal-look-'));
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe',
      '--no-first-run', '--disable-background-networking', '--disable-component-update', `--user-data-dir=${this.profile}`];
    this.child = spawn(process.env.CHROMIUM ?? 'chromium', flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.waiting = new Map();
    this.heard = [];
    this.number = 0;
    let rest = '';
    this.child.stdio[4].on('data', (text) => {
      const messages = (rest + text).split('\0');
      rest = messages.pop();
      for (const message of messages.map((text) => JSON.parse(text))) {
        const { id, result, error } = message;
        if (id === undefined) { this.heard.push(message); continue; }
        const { resolve, reject } = this.waiting.get(id);
        this.waiting.delete(id);
        if (error) reject(new Error(error.message)); else resolve(result);
      }
    });
  }

  call(method, params = {}, sessionId) {
    const id = ++this.number;
    this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  async end() {
    await this.call('Browser.close').catch(() => {});
    await new Promise((gone) => { if (this.child.exitCode !== null) gone(); else this.child.on('exit', gone); });
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

class Page {
  static async open(browser, url, { width = 390, dark = false, script = true } = {}) {
    const { browserContextId } = await browser.call('Target.createBrowserContext');
    const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank', browserContextId });
    const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
    const page = Object.assign(new Page(), { browser, url, sessionId, width, browserContextId, script });
    for (const domain of ['Page', 'Network', 'Log', 'Runtime']) await page.call(`${domain}.enable`);
    await page.call('Emulation.setDeviceMetricsOverride', { width, height: 780, deviceScaleFactor: 2, mobile: true });
    await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
    await page.call('Emulation.setScriptExecutionDisabled', { value: !script });
    await page.call('Page.navigate', { url });
    await page.sees('WiFi network');
    return page;
  }

  call(method, params) { return this.browser.call(method, params, this.sessionId); }

  async eval(expression) {
    const { result } = await this.call('Runtime.evaluate', { expression, returnByValue: true });
    return result.value;
  }

  text() { return this.eval('document.body.innerText'); }

  sees(words) { return until(`the page says “${words}”`, async () => (await this.text())?.includes(words)); }

  async click(selector) {
    const at = await this.eval(`(() => { const e = document.querySelector(${JSON.stringify(selector)});
      e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`);
    for (const type of ['mousePressed', 'mouseReleased']) {
      await this.call('Input.dispatchMouseEvent', { type, x: at[0], y: at[1], button: 'left', clickCount: 1 });
    }
  }

  async key(key, code = key, windowsVirtualKeyCode = { Tab: 9, Enter: 13, ' ': 32, ArrowDown: 40 }[key]) {
    const text = { Enter: '\r', ' ': ' ' }[key];
    await this.call('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', key, code, text, windowsVirtualKeyCode });
    await this.call('Input.dispatchKeyEvent', { type: 'keyUp', key, code, windowsVirtualKeyCode });
  }

  type(text) { return this.call('Input.insertText', { text }); }

  async shot(name) {
    const wide = await this.eval('[document.documentElement.scrollWidth, innerWidth].join()');
    check(`${name}: fits ${this.width} px`, wide === `${this.width},${this.width}`, wide);
    const { data } = await this.call('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true });
    writeFileSync(join(folder, `${name}.png`), Buffer.from(data, 'base64'));
  }

  async named(name) {
    const { nodes } = await this.call('Accessibility.getFullAXTree');
    const roles = ['textbox', 'radio', 'button', 'link', 'radiogroup', 'DisclosureTriangle'];
    const parts = nodes.filter((node) => !node.ignored && roles.includes(node.role?.value));
    const silent = parts.filter((node) => !node.name?.value?.trim());
    check(`${name}: ${parts.length} controls have names`, parts.length > 8 && silent.length === 0, JSON.stringify(silent));
  }

  async close(name) {
    const of = (method) => this.browser.heard.filter((event) => event.sessionId === this.sessionId && event.method === method);
    const bad = [...of('Runtime.exceptionThrown').map((event) => event.params.exceptionDetails.text),
      ...of('Log.entryAdded').map((event) => event.params.entry).filter((entry) => entry.source !== 'network').map((entry) => entry.text)];
    check(`${name}: no errors`, bad.length === 0, bad.join('; '));
    const asked = of('Network.requestWillBeSent').map((event) => event.params.request.url).filter((url) => !url.startsWith('data:'));
    check(`${name}: asks for nothing elsewhere`, asked.length > 0 && asked.every((url) => url.startsWith(this.url)), asked.join(' '));
    await this.browser.call('Target.disposeBrowserContext', { browserContextId: this.browserContextId });
  }
}

const stories = {
  async first_look(browser) {
    const here = await device();
    for (const width of [320, 390]) {
      for (const dark of [false, true]) {
        const name = `before-${width}-${dark ? 'dark' : 'light'}`;
        const page = await Page.open(browser, here.url, { width, dark });
        await page.named(name);
        await page.shot(name);
        await page.close(name);
      }
    }
    here.end();
  },

  async wrong_then_right(browser) {
    for (const [width, dark] of [[320, true], [390, false]]) {
      const here = await device();
      const name = `${width}-${dark ? 'dark' : 'light'}`;
      check('the sheet opens', (await asked(here.url, '/hotspot-detect.html', 'captive.apple.com')).startsWith('302'));
      const page = await Page.open(browser, here.url, { width, dark });
      await page.click('[for=n0]');
      await page.click('#password');
      await page.type('short');
      await page.click('#go');
      await page.sees('A WiFi password has');
      check('the field is marked and has the focus', await page.eval("document.activeElement.id + document.activeElement.getAttribute('aria-invalid')") === 'passwordtrue');
      await page.shot(`mistyped-${name}`);
      await page.type('er horse');
      await page.click('#show');
      check('the password is shown', await page.eval("document.getElementById('password').type") === 'text');
      await page.click('#go');
      await page.sees('Connecting to Home');
      await page.shot(`trying-${name}`);
      await page.sees('Wrong password for Home');
      await page.shot(`failed-${name}`);
      await until('the result is seen', () => here.said().includes('SawResult'));
      check('typing is an activity', here.said().includes('Touched'));
      check('the network stays chosen', await page.eval("document.querySelector('[name=network]:checked').id") === 'n0');
      await page.click('#password');
      await page.type('correct horse');
      await page.click('#credentials');
      await page.type(CREDENTIALS);
      await page.click('#go');
      await page.sees('You can close this page');
      await page.eval('scrollTo(0, 0)');
      await page.shot(`joined-${name}`);
      check('the sheet says Done', (await asked(here.url, '/hotspot-detect.html', 'captive.apple.com')).includes('<BODY>Success'));
      await until('the page is loaded once more, for the sheet to notice', () => page.eval('location.search').then((query) => query === '?done'));
      await page.sees('You can close this page');
      check('its identity is not asked for any more', !(await page.text()).includes('Credentials'));
      await page.close(`wrong then right ${name}`);
      here.end();
    }
  },

  async without_script(browser) {
    const here = await device();
    const page = await Page.open(browser, here.url, { width: 320, script: false });
    await page.shot('no-script-before');
    await page.click('#rescan');
    await until('a new look', () => here.said().includes('Rescan'));
    await page.sees('WiFi network');
    await page.click('[for=n1]');
    await page.click('#password');
    await page.type('wrong horse');
    await page.click('#go');
    await page.sees('Connecting to Workshop');
    await page.sees('Wrong password for Workshop 2.4 GHz');
    await page.shot('no-script-failed');
    check('a hidden field is not there', await page.eval("getComputedStyle(document.getElementById('other')).display") === 'none');
    await page.click('[for=o]');
    check('and is there when it is wanted', await page.eval("getComputedStyle(document.getElementById('other')).display") === 'block');
    await page.click('#name');
    await page.type('Attic');
    await page.click('#password');
    await page.type('correct horse');
    await page.click('#credentials');
    await page.type(CREDENTIALS);
    await page.click('#go');
    await page.sees('The device is connected to Attic');
    await page.shot('no-script-joined');
    check('who is done sees no form', await page.eval("document.getElementById('join').offsetHeight") === 0);
    await page.click('.card a');
    await page.sees('Connect\n');
    await page.close('without script');
    here.end();
  },

  async by_keyboard(browser) {
    const here = await device('--owned');
    const page = await Page.open(browser, here.url, { width: 390 });
    const focus = () => page.eval('document.activeElement.id');
    const reach = async (id) => {
      for (let steps = 0; await focus() !== id; steps += 1) {
        if (steps === 20) throw new Error(`#${id} cannot be reached with Tab`);
        await page.key('Tab');
      }
    };
    await reach('rescan');
    await page.key('Tab');
    await page.key(' ', 'Space');
    await page.key('ArrowDown');
    check('arrows choose', await page.eval("document.querySelector('[name=network]:checked').id") === 'n1');
    const ring = await page.eval("getComputedStyle(document.activeElement.nextElementSibling).outlineStyle");
    check('the focus can be seen', ring === 'solid', ring);
    await page.shot('keyboard');
    await reach('password');
    await page.type('correct horse');
    await page.key('Enter');
    await page.sees('The device is connected to Workshop');
    check('no identity was asked for', !(await page.text()).includes('Credentials'));
    await page.shot('owned-joined');
    await page.close('by keyboard');
    here.end();
  },

  async a_radio_that_cannot_do_both(browser) {
    const here = await device('--leaves', '--owned', '--takes', '12000');
    const page = await Page.open(browser, here.url, { width: 320 });
    await page.click('[for=n0]');
    await page.click('#password');
    await page.type('wrong horse');
    await page.shot('leaves-before');
    await page.click('#go');
    await page.sees('The device leaves to join Home');
    await page.shot('leaves-going');
    await page.sees('The device has left its hotspot');
    await page.sees('Wrong password for Home');
    await page.shot('leaves-failed');
    await page.close('a radio that cannot do both');
    here.end();
  },
};

const browser = new Browser();
try {
  for (const [name, story] of Object.entries(stories)) {
    console.log(`# ${name}`);
    await story(browser);
  }
} finally {
  await browser.end();
}
console.log(failures ? `${failures} failed` : `all well; pictures in ${folder}`);
process.exit(failures ? 1 : 0);
