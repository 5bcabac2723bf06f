// A real Chromium, of a phone's size or another, spoken to by its own protocol, and what is demanded of every page: it fits the screen, its
// controls have names, it breaks no policy and asks for nothing elsewhere. CHROMIUM may name the browser.

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const LIMIT = Number(process.env.LOOK_SECONDS ?? 60) * 1000;
let failures = 0;

export const failed = () => failures;

export function check(what, holds, seen = '') {
  console.log(`${holds ? 'ok  ' : 'FAIL'} ${what}${holds ? '' : ` ${seen}`}`);
  failures += holds ? 0 : 1;
}

export async function until(what, probe) {
  for (const end = Date.now() + LIMIT; Date.now() < end; await new Promise((go) => setTimeout(go, 50))) {
    try {
      const found = await probe();
      if (found) return found;
    } catch { /* a page that is being loaded */ }
  }
  throw new Error(`${what}: not within ${LIMIT / 1000} s`);
}

export class Browser {
  /** Pictures go to `folder`; `flags` are the browser's own, beside ours. */
  constructor(folder, ...more) {
    mkdirSync(folder, { recursive: true });
    this.folder = folder;
    this.profile = mkdtempSync(join(tmpdir(), 'portal-look-'));
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe',
      '--no-first-run', '--disable-background-networking', '--disable-component-update', `--user-data-dir=${this.profile}`, ...more];
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

const origin = (url) => new URL(url).origin;

export class Page {
  /** `leads` are other origins that a person may be led to from here; what their pages do is theirs. */
  static async open(browser, url, { width = 390, dark = false, script = true, shows = 'WiFi network', leads = [] } = {}) {
    const { browserContextId } = await browser.call('Target.createBrowserContext');
    const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank', browserContextId });
    const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
    const page = Object.assign(new Page(), { browser, url, sessionId, width, browserContextId, script, leads });
    for (const domain of ['Page', 'Network', 'Log', 'Runtime']) await page.call(`${domain}.enable`);
    await page.call('Emulation.setDeviceMetricsOverride', { width, height: 780, deviceScaleFactor: 2, mobile: width < 600 });
    await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
    await page.call('Emulation.setScriptExecutionDisabled', { value: !script });
    await page.call('Page.navigate', { url });
    await page.sees(shows);
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
    writeFileSync(join(this.browser.folder, `${name}.png`), Buffer.from(data, 'base64'));
  }

  async named(name, least = 9) {
    const { nodes } = await this.call('Accessibility.getFullAXTree');
    const roles = ['textbox', 'radio', 'button', 'link', 'radiogroup', 'DisclosureTriangle'];
    const parts = nodes.filter((node) => !node.ignored && roles.includes(node.role?.value));
    const silent = parts.filter((node) => !node.name?.value?.trim());
    check(`${name}: ${parts.length} controls have names`, parts.length >= least && silent.length === 0, JSON.stringify(silent));
  }

  async close(name) {
    const of = (method) => this.browser.heard.filter((event) => event.sessionId === this.sessionId && event.method === method);
    const bad = [...of('Runtime.exceptionThrown').map((event) => event.params.exceptionDetails.text),
      ...of('Log.entryAdded').map((event) => event.params.entry)
        .filter((entry) => entry.source !== 'network' && !(entry.url && this.leads.includes(origin(entry.url)))).map((entry) => entry.text)];
    check(`${name}: no errors`, bad.length === 0, bad.join('; '));
    const here = of('Network.requestWillBeSent').map((event) => event.params).filter((sent) => !this.leads.includes(origin(sent.documentURL)));
    const asked = here.map((sent) => sent.request.url).filter((url) => !url.startsWith('data:'));
    check(`${name}: asks for nothing elsewhere`, asked.length > 0 && asked.every((url) => origin(url) === origin(this.url)), asked.join(' '));
    await this.browser.call('Target.disposeBrowserContext', { browserContextId: this.browserContextId });
  }
}
