//! Files of a quarter of a gigabyte: apart from the other tests of the program, whose programs wait for each other's writes
//! while the disk is busy with these.

mod world;

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
};

use api::pb::platform::app::v1::*;
use prost::Message;

use world::process::{Server, init};

/// Kilobytes from the kernel's account of a process.
fn memory(process: &Child, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Uploads files of this size in so many messages, one after the other; fails if that takes memory.
async fn costs_no_memory(data: &Path, options: &[&str], variables: Vec<(String, String)>, messages: &[usize]) {
    const MEBIBYTES: usize = 256;
    // Whatever the size of the file.
    const MOST_KB: u64 = 32 << 10;
    let (organization_id, key_id, key) = init(data);
    let server = Server::start_with(data, |command| command.args(options).envs(variables).stderr(Stdio::null()));
    let client = server.client(&key_id, &key).await;
    let create = CreateModuleRequest { organization_id, name: "camera".into() };
    let module: CreateModuleResponse = client.app("CreateModule", create).await.unwrap();
    let token = format!("Bearer {}", client.token.clone().unwrap());

    let part = |part| bytes::Bytes::from(UploadModuleFileRequest { module_file: Some(part) }.encode_to_vec());
    let before = memory(&server.process, "VmRSS");
    for (n, messages) in messages.iter().copied().enumerate() {
        let (module_id, platform) = (module.module_id.clone(), "any".to_owned());
        let info = ModuleFileInfo { module_id, version: format!("1.0.{n}"), platform, platform_tags: Vec::new() };
        let piece = part(upload_module_file_request::ModuleFile::File(vec![7; (MEBIBYTES << 20) / messages].into()));
        let info = part(upload_module_file_request::ModuleFile::ModuleFileInfo(info));
        let sent = std::iter::once(info).chain(std::iter::repeat_n(piece, messages));
        let mut request = tonic::Request::new(tokio_stream::iter(sent));
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        let mut grpc = tonic::client::Grpc::new(client.channel.clone());
        grpc.ready().await.unwrap();
        let path = "/platform.app.v1.AppService/UploadModuleFile".parse().unwrap();
        let answer = grpc.client_streaming(request, path, world::Plain);
        tokio::time::timeout(5 * world::PATIENCE, answer).await.expect("an answer").unwrap();
        let grown = memory(&server.process, "VmHWM").saturating_sub(before);
        assert!(grown < MOST_KB, "{grown} kB more at most, for {MEBIBYTES} MiB in {messages} messages");
    }
}

#[tokio::test]
async fn a_large_file_costs_the_server_no_memory_in_one_message_or_in_many() {
    let folder = tempfile::tempdir().unwrap();
    costs_no_memory(&folder.path().join("data"), &[], Vec::new(), &[1, 256]).await;
}

/// Who keeps the bucket is another process: this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_costs_the_server_no_memory_on_its_way_to_a_bucket() {
    if world::engine::ON_POSTGRES {
        // The database has no part in it, and a quarter of a gigabyte takes its time.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bucket = test_s3::Server::start().await.unwrap();
    let address = format!("s3://{}", test_s3::BUCKET);
    costs_no_memory(&folder.path().join("data"), &["--artifacts", &address], bucket.variables(), &[256]).await;
    assert_eq!((bucket.objects().len(), bucket.parts()), (1, 0), "{:?}", bucket.objects());
}
