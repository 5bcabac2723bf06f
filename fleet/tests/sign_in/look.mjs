// A person at the server's pages, in a real browser of a phone's and of a desk's size: signs in at a real provider, comes by
// a link, presses a button, copies the key; with a keyboard, in the light and in the dark. Saves what it saw, and fails when
// something cannot be done, is wider than the screen, has no name for a screen reader, breaks the pages' own policy or asks
// for anything elsewhere.
//
//   node look.mjs FOLDER WORLD      WORLD is JSON: `fleet`, a server whose people sign in at `provider`, and `plain`, one
//                                   without; of each the invitations, as many as there are looks; CHROMIUM may name the browser

import { Browser, Page, check, failed, until } from '../../../test-harness/portal/browser.mjs';

const folder = process.argv[2];
const world = JSON.parse(process.argv[3]);
/** Where the servers believe to be; the browser is told where that is, and of nobody else. */
const FLEET = 'http://fleet.example.org';
const PLAIN = 'http://plain.example.org';
const LOOKS = [[320, true], [390, false], [1280, false]];

/** The one thing that a page is about is reached with one key, is seen to be, and done with another. */
async function pressed(page, name, element) {
  await page.key('Tab');
  const [tag, outline] = JSON.parse(await page.eval(
    '(() => { const e = document.activeElement; return JSON.stringify([e.localName, getComputedStyle(e).outlineStyle]); })()'));
  check(`${name}: a key reaches it, and it is seen`, tag === element && outline !== 'none', `${tag} ${outline}`);
  await page.shot(`${name}-focus`);
  await page.key('Enter');
}

/** On a line so slow that the second press comes before an answer. */
async function pressed_twice(page, selector) {
  const line = { offline: false, downloadThroughput: -1, uploadThroughput: -1 };
  await page.call('Network.emulateNetworkConditions', { ...line, latency: 1000 });
  const [x, y] = JSON.parse(await page.eval(`(() => { const r = document.querySelector('${selector}').getBoundingClientRect();
    return JSON.stringify([r.x + r.width / 2, r.y + r.height / 2]); })()`));
  for (const clickCount of [1, 2]) {
    for (const type of ['mousePressed', 'mouseReleased']) {
      await page.call('Input.dispatchMouseEvent', { type, x, y, button: 'left', clickCount });
    }
  }
  await page.call('Network.emulateNetworkConditions', { ...line, latency: 0 });
}

/** The same page for somebody whose browser runs no scripts. */
async function without_scripts(page, words) {
  await page.call('Emulation.setScriptExecutionDisabled', { value: true });
  await page.call('Page.reload');
  await page.sees(words);
}

/** The whole key and nothing else is taken by one press on it. */
async function taken(page, name) {
  for (const id of ['key-id', 'key']) {
    await page.click(`#${id}`);
    const [chosen, shown] = JSON.parse(await page.eval(
      `JSON.stringify([getSelection().toString().trim(), document.getElementById('${id}').textContent])`));
    check(`${name}: one press takes the ${id}`, chosen === shown && shown.length >= 32, `${chosen.length} of ${shown.length} letters`);
  }
}

/** From the page that begins it to the key. */
async function signs_in(page, name, who) {
  await page.named(name, 1);
  await page.shot(`sign-in-${name}`);
  await pressed(page, `sign-in-${name}`, 'a');
  await page.sees('Authorize Client');
  check('no address is told to the provider', await page.eval('document.referrer') === '');
  await page.click('[name=sub]');
  await page.type(who);
  await page.key('Enter');
  await page.sees('Signed in');
  await page.shot(`signed-in-${name}`);
  await taken(page, name);
  const { cookies } = await page.call('Network.getCookies', { urls: [`${FLEET}/sign-in`] });
  check('nothing of it stays in the browser', cookies.length === 0, JSON.stringify(cookies));
}

const stories = {
  async who_is_known_signs_in(browser, { width, dark, name }) {
    const page = await Page.open(browser, `${FLEET}/sign-in`, { width, dark, shows: 'Sign in', leads: [world.provider] });
    await signs_in(page, name, 'ann');
    await page.close(`signs in ${name}`);
  },

  async who_says_no_is_told_so_and_begins_again(browser, { width, dark, name }) {
    const page = await Page.open(browser, `${FLEET}/sign-in`, { width, dark, shows: 'Sign in', leads: [world.provider] });
    await page.click('a');
    await page.sees('Authorize Client');
    await page.click('[value=deny]');
    await page.sees('Not signed in');
    await page.shot(`refused-${name}`);
    await pressed(page, `refused-${name}`, 'a');
    await until('the beginning', () => page.eval('location.pathname').then((path) => path === '/sign-in'));
    await page.close(`is refused ${name}`);
  },

  async who_comes_by_a_link_signs_in(browser, { width, dark, name, turn }) {
    const [link, who] = world.fleet.invitations[turn];
    const page = await Page.open(browser, FLEET + link, { width, dark, shows: 'is invited to the organization', leads: [world.provider] });
    await pressed(page, `member-to-be-${name}`, 'button');
    await page.sees('Welcome');
    await page.shot(`member-${name}`);
    await pressed(page, `member-${name}`, 'a');
    await page.sees('Go on to');
    await signs_in(page, `after-a-link-${name}`, who);
    await page.close(`comes by a link and signs in ${name}`);
  },

  async who_comes_by_a_link_gets_a_key_where_nobody_signs_in(browser, { width, dark, name, turn }) {
    const [link] = world.plain.invitations[turn];
    const page = await Page.open(browser, PLAIN + link, { width, dark, shows: 'is invited to the organization' });
    await page.named(name, 1);
    await page.shot(`invited-${name}`);
    if (turn === 2) await without_scripts(page, 'is invited to the organization');
    if (turn === 0) await pressed(page, `invited-${name}`, 'button');
    else await pressed_twice(page, 'button');
    await page.sees('Welcome');
    await page.shot(`welcome-${name}`);
    await taken(page, name);
    await page.call('Page.navigate', { url: PLAIN + link });
    await page.sees('This link opens nothing');
    await page.shot(`used-${name}`);
    await page.close(`comes by a link ${name}`);
  },
};

const rules = `MAP fleet.example.org ${world.fleet.address}, MAP plain.example.org ${world.plain.address}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1`;
// Without a certificate: the browser is not to look for one.
const browser = new Browser(folder, `--host-resolver-rules=${rules}`, '--disable-features=HttpsUpgrades');
try {
  for (const [turn, [width, dark]] of LOOKS.entries()) {
    for (const story of Object.values(stories)) {
      console.log(`# ${story.name}`);
      await story(browser, { width, dark, turn, name: `${width}-${dark ? 'dark' : 'light'}` });
    }
  }
} finally {
  await browser.end();
}
console.log(failed() ? `${failed()} failed` : `all well; pictures in ${folder}`);
process.exit(failed() ? 1 : 0);
