// Calls every operation of the management API that the TypeScript client library has, in Node or in a browser.
//
// `run` resolves with {methods, called, wire}: what the library offers, what of it was called, and which operations were
// seen leaving by `fetch`. What is compared to what is in tests/clients.rs.

function same(seen, wanted, what) {
  const [left, right] = [seen, wanted].map((value) => JSON.stringify(value));
  if (left !== right) throw new Error(`${what}: ${left} instead of ${right}`);
}

/** A status by its number, as the library names none. */
const CODE = { invalid: 3, missing: 5, exists: 6, denied: 7, precondition: 9, unauthenticated: 16 };

async function refused(call, code) {
  let answer;
  try {
    answer = await call;
  } catch (why) {
    if (why.code !== code) throw new Error(`${code} was expected: ${why}`);
    return;
  }
  throw new Error(`${code} was expected: ${JSON.stringify(answer)}`);
}

/** Notes who leaves by `fetch`, and with which token. */
function watched() {
  const seen = { wire: new Set(), token: '' };
  const fetch = globalThis.fetch.bind(globalThis);
  globalThis.fetch = (address, options) => {
    const [service, method] = new URL(address).pathname.split('/').slice(-2);
    if (service === 'viam.app.v1.AppService') seen.wire.add(method);
    seen.token = new Headers(options?.headers).get('authorization') ?? seen.token;
    return fetch(address, options);
  };
  return seen;
}

/** What the library has no method for, in its own messages: one gRPC-Web call of any number of messages. */
async function raw(url, token, path, ...messages) {
  const frames = messages.map((message) => {
    const bytes = message.toBinary();
    const frame = new Uint8Array(5 + bytes.length);
    new DataView(frame.buffer).setUint32(1, bytes.length);
    frame.set(bytes, 5);
    return frame;
  });
  const headers = { authorization: token, 'content-type': 'application/grpc-web+proto', 'x-grpc-web': '1' };
  const answer = await fetch(`${url}/${path}`, { method: 'POST', headers, body: new Blob(frames) });
  const text = new TextDecoder('latin1').decode(await answer.arrayBuffer());
  if (!/grpc-status: ?0/.test(text)) throw new Error(`${path}: ${answer.status} ${text}`);
}

async function organizations(app, org) {
  same((await app.listOrganizations()).map((one) => one.id), [org], 'organizations');
  same((await app.getOrganization(org)).id, org, 'organization');
  same(await app.getOrganizationNamespaceAvailability('acme-1'), true, 'a free namespace');
  const changed = await app.updateOrganization(org, 'Acme', 'acme-1', 'eu', '42');
  same([changed.name, changed.publicNamespace, changed.defaultRegion], ['Acme', 'acme-1', 'eu'], 'the change');
  same(await app.getOrganizationNamespaceAvailability('acme-1'), false, 'a taken namespace');
  await refused(app.updateOrganization(org, undefined, 'acme-2'), CODE.precondition);
  const second = await app.createOrganization('Second');
  same((await app.listOrganizations()).length, 2, 'organizations');
  return second.id;
}

async function locations(app, org, second) {
  const north = await app.createLocation(org, 'North');
  const hall = await app.createLocation(org, 'Hall', north.id);
  same((await app.getLocation(hall.id)).parentLocationId, north.id, 'the parent');
  same((await app.updateLocation(hall.id, 'Hall 2', '')).parentLocationId, '', 'no parent');
  same((await app.updateLocation(hall.id, 'Hall 3')).name, 'Hall 3', 'the name');
  same((await app.listLocations(org)).length, 2, 'locations');
  await app.shareLocation(second, north.id);
  const reach = await app.getOrganizationsWithAccessToLocation(north.id);
  same(reach.map((one) => one.id), [org, second], 'who reaches it');
  await app.unshareLocation(second, north.id);
  const auth = await app.createLocationSecret(north.id);
  same((await app.locationAuth(north.id)).secrets.length, 1, 'secrets');
  await app.deleteLocationSecret(north.id, auth.secrets[0].id);
  await app.deleteLocation(hall.id);
  await refused(app.getLocation(hall.id), CODE.missing);
  return north.id;
}

async function machines({ Struct }, app, location) {
  const robot = await app.newRobot(location, 'arm');
  same((await app.listRobots(location)).map((one) => one.id), [robot], 'machines');
  same((await app.updateRobot(robot, location, 'Arm')).name, 'Arm', 'the new name');
  same((await app.getRobot(robot)).name, 'Arm', 'the machine');
  const [main, ...others] = await app.getRobotParts(robot);
  same([main.mainPart, others.length], [true, 0], 'its parts');
  const second = await app.newRobotPart(robot, 'wrist');
  await app.markPartAsMain(second);
  await refused(app.deleteRobotPart(second), CODE.precondition);
  await app.markPartAsMain(main.id);
  await app.markPartForRestart(main.id);
  const withSecret = await app.createRobotPartSecret(second);
  same(withSecret.secrets.length, 2, 'secrets of a part');
  await app.deleteRobotPartSecret(second, withSecret.secrets[0].id);
  await app.deleteRobotPart(second);
  const updated = await app.updateRobotPart(main.id, main.name, Struct.fromJson({ n: 10 }));
  same(updated.robotConfig.toJson(), { n: 10 }, 'the configuration');
  const { part, configJson } = await app.getRobotPart(main.id);
  same([part.id, configJson], [main.id, '{"n":10}'], 'the part');
  const named = await app.getRobotPartByNameAndLocation(main.name, location);
  same(named.part.id, main.id, 'the part by its name');
  same((await app.getRobotPartHistory(main.id)).length, 1, 'its history');
  // An empty Struct is an empty configuration, not an absent one.
  same((await app.updateRobotPart(main.id, main.name, Struct.fromJson({}))).robotConfig.toJson(), {}, 'no settings');
  return { robot, part: main.id };
}

async function logs({ appRobotApi }, app, url, seen, part) {
  const say = (message) => raw(url, seen.token, 'viam.app.v1.RobotService/Log', appRobotApi.LogRequest.fromJson({
    id: part, logs: [{ level: 'info', message, loggerName: 'test', time: new Date().toISOString() }],
  }));
  const heard = [];
  // It never ends by itself, and the library has no way to end it: losing the connection at the end is as it should be.
  app.tailRobotPartLogs(part, heard, undefined, false).catch(() => {});
  let count = 0;
  // A reader sees what arrives once it follows, and nothing tells when that is: say until it is heard.
  for (; heard.length === 0; count += 1) {
    if (count >= 1000) throw new Error('nothing was heard');
    await say(`line ${count}`);
    await new Promise((go) => setTimeout(go, 50));
  }
  same(heard[0].message.startsWith('line '), true, heard[0].message);
  const { logs: kept, nextPageToken } = await app.getRobotPartLogs(part);
  const wanted = Array.from({ length: Math.min(count, 100) }, (_, n) => `line ${count - 1 - n}`);
  same(kept.map((one) => one.message), wanted, 'newest first, each once');
  same(count <= 100 && nextPageToken !== '', false, 'a page that goes on');
  same((await app.getRobotPartLogs(part, 'line 0')).logs.length, 1, 'what was searched for');
  same((await app.getRobotPartLogs(part, undefined, ['error'])).logs.length, 0, 'errors');
}

/** More lines than a page has, gone through by token. */
async function pagesOfLogs({ appRobotApi }, app, url, token, part) {
  const begin = Date.now();
  const logs = Array.from({ length: 250 }, (_, n) => (
    { level: 'warn', message: `page ${n}`, loggerName: 'pages', time: new Date(begin + n).toISOString() }));
  await raw(url, token, 'viam.app.v1.RobotService/Log', appRobotApi.LogRequest.fromJson({ id: part, logs }));
  const found = [];
  let [at, pages] = ['', 0];
  do {
    const page = await app.getRobotPartLogs(part, 'page ', ['warn'], at);
    same(page.logs.length > 0, true, 'a page that is empty');
    found.push(...page.logs.map((one) => one.message));
    [at, pages] = [page.nextPageToken, pages + 1];
    if (at !== '') await refused(app.getRobotPartLogs(part, 'other', ['warn'], at), CODE.invalid);
  } while (at !== '');
  same(pages > 1, true, 'pages');
  same(found, logs.map((one) => one.message).reverse(), 'every line once');
}

async function fragments({ Struct, appApi }, app, org, robot) {
  const { UNSPECIFIED, PUBLIC_UNLISTED } = appApi.FragmentVisibility;
  const made = await app.createFragment(org, 'base', Struct.fromJson({ a: 1 }));
  const hidden = await app.updateFragment(made.id, 'base', Struct.fromJson({ a: 2 }), undefined, PUBLIC_UNLISTED);
  same(hidden.visibility, PUBLIC_UNLISTED, 'visibility');
  const own = await app.updateFragment(made.id, 'base', Struct.fromJson({ a: 3 }), false);
  same([own.public, own.visibility !== UNSPECIFIED], [false, true], 'private again');
  same((await app.getFragment(made.id)).fragment.toJson(), { a: 3 }, 'its content');
  same((await app.listFragments(org, false)).map((one) => one.id), [made.id], 'fragments');
  same((await app.listMachineFragments(robot, [made.id])).map((one) => one.id), [made.id], 'fragments of a machine');
  const [summary] = await app.listMachineSummaries(org, [], [], 10);
  same(summary.machineSummaries.map((one) => one.machineId), [robot], 'summaries');
  await app.deleteFragment(made.id);
  await refused(app.getFragment(made.id), CODE.missing);
}

/** packages.PackageType, which the library does not export. */
const MACHINE_LEARNING_MODEL = 2;

async function registry({ appApi }, app, org) {
  const { PRIVATE, PUBLIC } = appApi.Visibility;
  await app.createRegistryItem(org, 'detector', MACHINE_LEARNING_MODEL);
  await refused(app.createRegistryItem(org, 'detector', MACHINE_LEARNING_MODEL), CODE.exists);
  await app.updateRegistryItem('acme-1:detector', MACHINE_LEARNING_MODEL, 'finds screws', PUBLIC);
  const item = await app.getRegistryItem('acme-1:detector');
  same([item.itemId, item.description], ['acme-1:detector', 'finds screws'], 'the item');
  const found = async (visibilities, search) =>
    (await app.listRegistryItems(org, [], visibilities, [], [], search)).map((one) => one.itemId);
  same(await found([]), ['acme-1:detector'], 'all');
  same(await found([], 'SCREW'), ['acme-1:detector'], 'what was searched for');
  same(await found([PRIVATE]), [], 'private ones');
  await app.deleteRegistryItem('acme-1:detector');
  await refused(app.getRegistryItem('acme-1:detector'), CODE.missing);
}

async function modules({ appApi }, app, url, seen, org) {
  const { PUBLIC } = appApi.Visibility;
  const { moduleId, url: address } = await app.createModule(org, 'camera');
  same([moduleId, address.endsWith('/packages/v1/acme-1/camera')], ['acme-1:camera', true], address);
  const models = [new appApi.Model({ api: 'rdk:component:camera', model: 'acme-1:camera:usb' })];
  await app.updateModule(moduleId, PUBLIC, 'https://example.org', 'takes pictures', models, 'bin/run');
  same((await app.listModules(org)).map((one) => one.moduleId), [moduleId], 'modules');
  await refused(app.getAppContent('acme-1', 'viewer'), CODE.missing);
  // The library can neither declare an application nor upload a file; its messages can.
  const app1 = {
    name: 'viewer', type: 'single_machine', entrypoint: 'index.html', logoPath: 'logo.png',
    customizations: { machinePicker: { heading: 'Which one?' } },
  };
  const declared = appApi.UpdateModuleRequest.fromJson({
    moduleId, visibility: 'VISIBILITY_PUBLIC', url: '', description: '', entrypoint: 'bin/run', apps: [app1],
  });
  await raw(url, seen.token, 'viam.app.v1.AppService/UpdateModule', declared);
  const { UploadModuleFileRequest: Upload } = appApi;
  const about = Upload.fromJson({ moduleFileInfo: { moduleId, version: '1.0.0', platform: 'linux/any' } });
  const file = new Upload({ moduleFile: { case: 'file', value: new Uint8Array(300_000).fill(7) } });
  await raw(url, seen.token, 'viam.app.v1.AppService/UploadModuleFile', about, file);
  // Not the library's doing.
  seen.wire.delete('UploadModuleFile');
  same((await app.getModule(moduleId)).versions.map((one) => one.version), ['1.0.0'], 'versions');
  const content = await app.getAppContent('acme-1', 'viewer');
  same([content.entrypoint, content.blobPath !== ''], ['index.html', true], 'the application');
  const branding = await app.getAppBranding('acme-1', 'viewer');
  same([branding.logoPath, branding.textCustomizations.machinePicker.fields.heading], ['logo.png', 'Which one?'], 'its look');
  await app.deleteRegistryItem(moduleId);
  await refused(app.getModule(moduleId), CODE.missing);
}

async function metadata(app, ids) {
  for (const [kind, id] of Object.entries(ids)) {
    const [read, write] = [`get${kind}Metadata`, `update${kind}Metadata`];
    same(await app[read](id), {}, read);
    await app[write](id, { colour: 'blue', sizes: [1, 2] });
    same(await app[read](id), { colour: 'blue', sizes: [1, 2] }, write);
    await app[write](id, {});
    same(await app[read](id), {}, write);
  }
}

async function people({ appApi }, app, org, location, robot, outsider) {
  const role = (word, kind, id, who = '') => new appApi.Authorization({
    authorizationType: 'role', authorizationId: `${kind}_${word}`, resourceType: kind, resourceId: id,
    organizationId: org, identityId: who,
  });
  const invited = 'new@example.org';
  const first = await app.createOrganizationInvite(org, invited, []);
  same(first.authorizations.map((one) => one.authorizationId), ['organization_owner'], 'what an invitation brings');
  await refused(app.createOrganizationInvite(org, 'NEW@example.org', [], false), CODE.exists);
  const [operator, owner] = [role('operator', 'location', location), role('owner', 'organization', org)];
  const changed = await app.updateOrganizationInviteAuthorizations(org, invited, [operator], [owner]);
  same(changed.authorizations.map((one) => one.authorizationId), ['location_operator'], 'what it brings now');
  await refused(app.updateOrganizationInviteAuthorizations(org, invited, [], [operator]), CODE.precondition);
  same((await app.resendOrganizationInvite(org, invited)).email, invited, 'sent again');
  const listed = await app.listOrganizationMembers(org);
  same([listed.members.length, listed.invites.length], [1, 1], 'people');
  await app.deleteOrganizationInvite(org, invited);
  await refused(app.resendOrganizationInvite(org, invited), CODE.missing);

  await refused(app.getUserIDByEmail(outsider), CODE.missing);
  const user = await app.getUserIDByEmail(listed.members[0].emails[0]);
  same(user, listed.members[0].userId, 'a member');
  same((await app.listOrganizationsByUser(user)).map((one) => one.orgId), [org], 'organizations of a member');
  await app.addRole(org, user, 'operator', 'location', location);
  await app.changeRole(role('operator', 'location', location, user), role('owner', 'robot', robot, user));
  const given = await app.listAuthorizations(org, [robot]);
  same(given.map((one) => [one.identityId, one.identityType, one.authorizationId]), [[user, 'user', 'robot_owner']], 'roles');
  await app.removeRole(org, user, 'owner', 'robot', robot);
  await app.deleteOrganizationMember(org, user);
  await refused(app.deleteOrganizationMember(org, user), CODE.missing);
  const asked = new appApi.AuthorizedPermissions({
    resourceType: 'robot', resourceId: robot, permissions: ['write_robot', 'train_models'],
  });
  same((await app.checkPermissions([asked]))[0].permissions, ['write_robot'], 'permissions');
  await refused(app.checkPermissions([]), CODE.invalid);
}

async function keys({ appApi }, connect, app, org, robot) {
  const operator = new appApi.Authorization({
    authorizationType: 'role', authorizationId: 'robot_operator', resourceType: 'robot', resourceId: robot,
    organizationId: org, identityType: 'api-key',
  });
  const { id, key } = await app.createKey([operator], 'for a test');
  const client = await connect(id, key);
  same((await client.appClient.getRobot(robot)).id, robot, 'an operator reads');
  await refused(client.appClient.deleteRobot(robot), CODE.denied);
  same((await app.getRobotAPIKeys(robot)).map((one) => one.apiKey.id), [id], 'keys of a machine');
  const next = await app.rotateKey(id);
  await refused(client.appClient.getRobot(robot), CODE.unauthenticated);
  await connect(next.id, next.key);
  const copy = await app.createKeyFromExistingKeyAuthorizations(next.id);
  const listed = (await app.listKeys(org)).map((one) => one.apiKey.id);
  same([next.id, copy.id].every((one) => listed.includes(one)), true, 'keys of the organization');
  await app.deleteKey(copy.id);
  await app.deleteKey(next.id);
  await refused(app.deleteKey(next.id), CODE.missing);
}

/** `native`: what makes the library speak gRPC itself instead of gRPC-Web; Node only. */
export async function run(VIAM, { url, keyId, key, org, outsider }, native) {
  const seen = watched();
  const connect = (authEntity, payload) =>
    VIAM.createViamClient({ serviceHost: url, credentials: { type: 'api-key', authEntity, payload } });
  const web = await connect(keyId, key);
  await web.appClient.listOrganizations();
  await refused(connect(keyId, `${key}x`), CODE.unauthenticated);
  // Later what is raw needs it; the operator's client must not replace it.
  const token = { wire: seen.wire, token: seen.token };
  if (native) globalThis.VIAM = { GRPC_TRANSPORT_FACTORY: native };
  const { appClient } = native ? await connect(keyId, key) : web;
  const called = new Set();
  const app = new Proxy(appClient, {
    get(target, name) {
      called.add(name);
      return target[name].bind(target);
    },
  });
  const second = await organizations(app, org);
  const location = await locations(app, org, second);
  const { robot, part } = await machines(VIAM, app, location);
  await logs(VIAM, app, url, token, part);
  await pagesOfLogs(VIAM, app, url, token.token, part);
  await fragments(VIAM, app, org, robot);
  await registry(VIAM, app, org);
  await modules(VIAM, app, url, token, org);
  await metadata(app, { Organization: org, Location: location, Robot: robot, RobotPart: part });
  await people(VIAM, app, org, location, robot, outsider);
  await keys(VIAM, connect, app, org, robot);
  await app.deleteRobot(robot);
  await refused(app.getRobot(robot), CODE.missing);
  await app.deleteOrganization(second);
  await refused(app.deleteOrganization(org), CODE.precondition);
  const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(appClient)).filter((name) => name !== 'constructor');
  return { methods, called: [...called], wire: [...seen.wire] };
}
