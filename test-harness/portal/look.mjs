// A browser of a phone's size at the page behind the hotspot: what a person sees before, after a wrong and after a right
// password; the same without JavaScript; the same with nothing but a keyboard. Saves what it saw, and fails when something
// cannot be done, is wider than the screen, has no name for a screen reader, breaks the page's own policy or asks for
// anything elsewhere.
//
//   node look.mjs PROGRAM FOLDER      PROGRAM is test-harness' example `portal`; CHROMIUM may name the browser

import { spawn } from 'node:child_process';
import { request } from 'node:http';
import { Browser, Page, check, failed, until } from './browser.mjs';

const [program, folder] = process.argv.slice(2);
const CREDENTIALS = '{"cloud": {"app_address": "https://fleet.example.com", "id": "p-1", "secret": "s"}}';

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

const browser = new Browser(folder);
try {
  for (const [name, story] of Object.entries(stories)) {
    console.log(`# ${name}`);
    await story(browser);
  }
} finally {
  await browser.end();
}
console.log(failed() ? `${failed()} failed` : `all well; pictures in ${folder}`);
process.exit(failed() ? 1 : 0);
