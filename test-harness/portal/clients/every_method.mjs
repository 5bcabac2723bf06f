// The unmodified client of existing apps calls every method of the provisioning service over HTTP/1.1, as a phone would.
// ExitProvisioning, which it lacks, is called by hand, under both names of the package and in both encodings.
//
//   node every_method.mjs PROGRAM      PROGRAM is test-harness' example `portal`

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createViamClient, provisioningApi } from '@viamrobotics/sdk';

const child = spawn(process.argv[2], ['--port', '0', '--takes', '300'], { stdio: ['ignore', 'pipe', 'inherit'] });
let said = '';
const url = await new Promise((resolve) => child.stdout.on('data', (text) => {
  said += text;
  const found = said.match(/http:\S+/);
  if (found) resolve(found[0]);
}));
try {
  const credentials = { type: 'access-token', payload: 'none', authEntity: 'none' };
  const { provisioningClient: client } = await createViamClient({ serviceHost: url, credentials });
  const ended = async () => {
    for (;;) {
      const status = await client.getSmartMachineStatus();
      const last = status.latestConnectionAttempt;
      if (last?.connected || last?.lastError) return status;
      await new Promise((go) => setTimeout(go, 50));
    }
  };
  const before = await client.getSmartMachineStatus();
  assert.deepEqual([before.hasSmartMachineCredentials, before.isOnline, before.errors.length], [false, false, 0]);
  assert.equal(before.provisioningInfo.model, 'Arm 7');
  const networks = await client.getNetworkList();
  assert.deepEqual(networks.slice(0, 3).map((n) => [n.type, n.ssid, n.security, n.signal]), [
    ['wifi', 'Home', 'WPA2 WPA3', 88], ['wifi', 'Workshop 2.4 GHz', 'WPA2', 71], ['wifi', 'Café Grüße 🏠', '-', 55],
  ]);
  const refused = (code, words) => (error) => {
    assert.equal(error.code, code, String(error));
    assert.ok(error.rawMessage.includes(words), error.rawMessage);
    return true;
  };
  await assert.rejects(client.setNetworkCredentials('wifi', 'Home', 'short'), refused(3, '8 to 63 characters'));
  await assert.rejects(client.setNetworkCredentials('wired', 'Home', ''), refused(3, 'wifi'));
  await assert.rejects(client.setSmartMachineCredentials(new provisioningApi.CloudConfig({ id: 'p' })), refused(3, 'app_address'));
  const cloud = new provisioningApi.CloudConfig({ id: 'p-1', secret: 's', appAddress: 'https://fleet.example.com' });
  await client.setSmartMachineCredentials(cloud);
  await client.setNetworkCredentials('wifi', 'Home', 'wrong horse');
  await assert.rejects(client.setNetworkCredentials('wifi', 'Home', 'wrong horse'), refused(9, 'being tried'));
  const failed = await ended();
  assert.deepEqual([...failed.errors], ['wrong password for Home']);
  assert.equal((await client.getNetworkList())[0].lastError, 'wrong password for Home');
  await client.setNetworkCredentials('wifi', 'Home', 'correct horse');
  const joined = await ended();
  assert.deepEqual([joined.hasSmartMachineCredentials, joined.isOnline, joined.errors.length], [true, true, 0]);
  for (const vendor of ['viam', 'platform']) {
    for (const text of [false, true]) {
      const frame = Buffer.from([0, 0, 0, 0, 0]);
      const answer = await fetch(`${url}${vendor}.provisioning.v1.ProvisioningService/ExitProvisioning`, {
        method: 'POST',
        headers: { 'content-type': text ? 'application/grpc-web-text' : 'application/grpc-web+proto', 'x-grpc-web': '1' },
        body: text ? frame.toString('base64') : frame,
      });
      const bytes = Buffer.from(await answer.arrayBuffer());
      const body = text ? Buffer.from(bytes.toString(), 'base64') : bytes;
      assert.equal(body.toString('latin1'), '\0\0\0\0\0\x80\0\0\0\x0fgrpc-status:0\r\n');
    }
  }
  assert.equal(said.match(/App: Leave/g).length, 4, said);
  assert.equal(said.match(/App: Came/g).length, 1, said);
  console.log('every method of the provisioning service was called by existing clients, and answered');
} finally {
  child.kill();
}
