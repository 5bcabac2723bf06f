// A person with a browser at the page of a real board, through a port of this machine that leads there. Keeps what it saw.
//
//   node board.mjs FOLDER PORT wrong SSID PASSWORD     chooses a network, gives a wrong password, reads that it was wrong
//   node board.mjs FOLDER PORT done SSID               comes once the device is connected

import { Browser, Page, check, failed } from './browser.mjs';

const [folder, port, operation, ssid, password] = process.argv.slice(2);
// The page wants to be called by its address, as phones do.
const browser = new Browser(folder, `--host-resolver-rules=MAP 10.42.0.1:80 127.0.0.1:${port}`);
const url = 'http://10.42.0.1';

const operations = {
  async wrong() {
    const page = await Page.open(browser, url, { width: 390 });
    const value = `x${Buffer.from(ssid).toString('hex')}`;
    await page.named('board', 5);
    await page.shot('board-before');
    await page.click(`[for=${await page.eval(`document.querySelector('[name=network][value=${value}]').id`)}]`);
    await page.click('#password');
    await page.type(password);
    await page.click('#go');
    await page.sees(`Connecting to ${ssid}`);
    await page.shot('board-trying');
    await page.sees(`Wrong password for ${ssid}`);
    await page.shot('board-failed');
    await page.close('board');
  },

  async done() {
    const page = await Page.open(browser, url, { width: 390, shows: `connected to ${ssid}` });
    await page.sees('You can close this page');
    check('who is done sees no form', await page.eval("document.getElementById('join').offsetHeight") === 0);
    await page.shot('board-joined');
    await page.close('board');
  },
};

try {
  await operations[operation]();
} finally {
  await browser.end();
}
process.exit(failed() ? 1 : 0);
