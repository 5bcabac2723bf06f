// every_operation.mjs in Node; its report as the last line.
//
//   node in_node.mjs web|grpc URL KEY_ID KEY ORGANIZATION OUTSIDER_EMAIL      in a folder with the libraries

import { createGrpcTransport } from '@connectrpc/connect-node';
import * as VIAM from '@viamrobotics/sdk';
import { run } from './every_operation.mjs';

const [transport, url, keyId, key, org, outsider] = process.argv.slice(2);
setTimeout(() => { console.error('not within 5 minutes'); process.exit(1); }, 300_000).unref();
const native = transport === 'grpc' ? (options) => createGrpcTransport({ httpVersion: '2', ...options }) : undefined;
console.log(JSON.stringify(await run(VIAM, { url, keyId, key, org, outsider }, native)));
// The stream of logs is still open.
process.exit(0);
