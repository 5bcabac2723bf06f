//! The registry of the small server: what is made, changed and uploaded stays.

use api::{
    digest::Sum,
    pb::platform::app::{packages::v1 as packages, v1 as app},
};
use app::upload_module_file_request::ModuleFile;

use super::{read, reply, time};
use crate::server::{CLOSE, Line, Request, trailers_only};

#[derive(Default)]
pub struct Registry {
    pub modules: Vec<app::Module>,
    pub items: Vec<app::RegistryItem>,
    pub uploaded: Option<(app::ModuleFileInfo, Vec<u8>)>,
    /// Downloads break off after so many bytes.
    pub breaks_after: Option<usize>,
    /// Keeps less than it was given.
    pub loses_bytes: bool,
}

const PACKAGES: &str = "https://fleet.example.com/packages/v1";

/// A file, from where it is asked for.
pub fn download(state: &Registry, request: &Request, line: &mut dyn Line) {
    if request.header("authorization") != Some("Bearer token") {
        return line.write_all(b"HTTP/1.1 401 x\r\nContent-Length: 8\r\n\r\nno token").unwrap();
    }
    let (_, bytes) = state.uploaded.as_ref().unwrap();
    let mut sum = Sum::default();
    sum.add(bytes);
    let tag = format!("\"{}\"", sum.hex());
    let from = request.header("range").filter(|_| request.header("if-range") == Some(&*tag));
    let from: usize = from.map_or(0, |range| range["bytes=".len()..range.len() - 1].parse().unwrap());
    let (total, rest) = (bytes.len(), &bytes[from..]);
    let head = match from {
        0 => "HTTP/1.1 200 OK\r\n".to_owned(),
        _ => format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{total}\r\n", total - 1),
    };
    let sent = &rest[..state.breaks_after.unwrap_or(usize::MAX).min(rest.len())];
    let head = format!("{head}ETag: {tag}\r\nContent-Length: {}\r\n\r\n", rest.len());
    // Who has heard enough hangs up.
    let _ = line.write_all(head.as_bytes()).and_then(|()| line.write_all(sent)).and_then(|()| line.flush());
    if sent.len() < rest.len() {
        line.write_all(CLOSE).unwrap();
    }
}

/// Whether the operation is one of these.
pub fn serve(state: &mut Registry, method: &str, request: &Request, line: &mut dyn Line) -> bool {
    match method {
        "CreateModule" => {
            let app::CreateModuleRequest { organization_id, name } = read(request);
            let module_id = format!("{organization_id}:{name}");
            state.modules.push(app::Module { module_id: module_id.clone(), visibility: 1, ..Default::default() });
            reply(line, &app::CreateModuleResponse { module_id, url: format!("{PACKAGES}/{organization_id}/{name}") });
        }
        "ListModules" => reply(line, &app::ListModulesResponse { modules: state.modules.clone() }),
        "GetModule" => {
            let id = read::<app::GetModuleRequest>(request).module_id;
            match state.modules.iter().find(|one| one.module_id == id) {
                Some(module) => reply(line, &app::GetModuleResponse { module: Some(module.clone()) }),
                None => trailers_only(line, 5, "no%20such%20module"),
            }
        }
        "UpdateModule" => {
            let change: app::UpdateModuleRequest = read(request);
            let module = &mut state.modules[0];
            *module = app::Module {
                visibility: change.visibility,
                url: change.url,
                description: change.description,
                models: change.models,
                entrypoint: change.entrypoint,
                markdown_description: change.markdown_description.or(module.markdown_description.take()),
                apps: if change.apps.is_empty() { module.apps.clone() } else { change.apps },
                ..module.clone()
            };
            reply(line, &app::UpdateModuleResponse { url: String::new() });
        }
        "UploadModuleFile" => {
            let (mut info, mut bytes) = (None, Vec::new());
            for message in request.messages::<app::UploadModuleFileRequest>() {
                match message.module_file.unwrap() {
                    ModuleFile::ModuleFileInfo(first) => info = Some(first),
                    ModuleFile::File(more) => bytes.extend(more),
                }
            }
            let info = info.unwrap();
            let file = app::Uploads { platform: info.platform.clone(), uploaded_at: time(0) };
            let version =
                app::VersionHistory { version: info.version.clone(), files: vec![file], ..Default::default() };
            state.modules[0].versions.push(version);
            bytes.truncate(if state.loses_bytes { 10 } else { usize::MAX });
            state.uploaded = Some((info, bytes));
            reply(line, &app::UploadModuleFileResponse { url: format!("{PACKAGES}/there") });
        }
        "GetPackage" => {
            let (about, bytes) = state.uploaded.as_ref().unwrap();
            let mut sum = Sum::default();
            sum.add(bytes);
            let size = bytes.len() as u64;
            let info = packages::PackageInfo {
                version: about.version.clone(),
                platform: Some(about.platform.clone()),
                files: vec![packages::FileInfo { name: "camera.tar.gz".into(), size, is_directory: None }],
                ..Default::default()
            };
            let package =
                packages::Package { info: Some(info), checksum: sum.hex(), created_on: time(0), ..Default::default() };
            let url = format!("{PACKAGES}/acme/camera/{}/any", about.version);
            let package = packages::Package { url, ..package };
            reply(line, &packages::GetPackageResponse { package: Some(package) });
        }
        "CreateRegistryItem" => {
            let app::CreateRegistryItemRequest { organization_id, name, r#type } = read(request);
            let item_id = format!("{organization_id}:{name}");
            state.items.push(app::RegistryItem { item_id, r#type, visibility: 1, ..Default::default() });
            reply(line, &app::CreateRegistryItemResponse {});
        }
        "ListRegistryItems" => reply(line, &app::ListRegistryItemsResponse { items: state.items.clone() }),
        "GetRegistryItem" => reply(line, &app::GetRegistryItemResponse { item: state.items.first().cloned() }),
        "UpdateRegistryItem" => {
            let change: app::UpdateRegistryItemRequest = read(request);
            state.items[0].visibility = change.visibility;
            state.items[0].description = change.description;
            reply(line, &app::UpdateRegistryItemResponse {});
        }
        "DeleteRegistryItem" => reply(line, &app::DeleteRegistryItemResponse {}),
        "GetAppContent" => {
            let content = app::GetAppContentResponse {
                blob_path: "/packages/v1/acme/camera/1.0.0/any".into(),
                entrypoint: "index.html".into(),
                app_type: app::AppType::MultiMachine.into(),
                public: false,
            };
            reply(line, &content);
        }
        "GetAppBranding" => {
            let words = [("heading".to_owned(), "Choose".to_owned())];
            let texts = app::TextOverrides { fields: words.into() };
            let branding = app::GetAppBrandingResponse {
                logo_path: Some("logo.png".into()),
                text_customizations: [("machinePicker".to_owned(), texts)].into(),
                fragment_ids: vec!["f".into()],
                allowed_org_ids: vec!["o".into()],
            };
            reply(line, &branding);
        }
        _ => return false,
    }
    true
}
