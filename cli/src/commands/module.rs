//! `module`: programs that machines run, their versions and files.

use std::path::PathBuf;

use api::pb::platform::app::{
    packages::v1::{self as packages, package_service},
    v1::{self as app, app_service},
};
use clap::Subcommand;
use serde_json::json;

use super::{
    download,
    module_meta::Meta,
    read_text, registry,
    registry::{Visibility, id_of, visibility_of},
    upload::Upload,
};
use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show those of the organization, and all that are public
    List,
    /// Show one with its versions
    Get {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
    },
    /// Make a new one, private
    Create {
        /// Its name: letters, digits, dashes and underscores
        name: String,
    },
    /// Change what is said about one; what is not given stays
    Update {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
        /// Its meta.json: models, entrypoint, first run, applications
        #[arg(long, value_name = "FILE")]
        meta: Option<PathBuf>,
        /// Its page for people, in Markdown
        #[arg(long, value_name = "FILE")]
        readme: Option<PathBuf>,
        /// Who sees it
        #[arg(long, value_enum)]
        visibility: Option<Visibility>,
        /// For people
        #[arg(long)]
        description: Option<String>,
        /// Where its sources are
        #[arg(long)]
        url: Option<String>,
        /// The program in its archive that is started
        #[arg(long)]
        entrypoint: Option<String>,
    },
    /// Upload the file of a version for a platform
    Upload {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
        /// The archive
        file: PathBuf,
        /// A semantic version; what was uploaded under it does not change
        #[arg(long)]
        version: String,
        /// SYSTEM/PROCESSOR such as linux/arm64, linux/any, or any
        #[arg(long)]
        platform: String,
        /// What else a machine must have, such as distro:debian
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Show where the file of a version is, and its SHA-256
    File {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
        /// Without, the newest
        #[arg(long, default_value = "latest")]
        version: String,
        /// For which platform
        #[arg(long)]
        platform: Option<String>,
    },
    /// Fetch the file of a version; a try that broke off is continued
    Download {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
        /// Without, the newest
        #[arg(long, default_value = "latest")]
        version: String,
        /// For which platform
        #[arg(long)]
        platform: Option<String>,
        /// Where to: a file, which is written over if it is there, or a folder that is there, for the file under its own
        /// name; without, this folder. Under its own name it takes the place of no other file
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// Delete one that nobody uses, with every version
    Delete {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        module: String,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => {
            let organization_id = Some(find::organization(session, None)?.id);
            let request = app::ListModulesRequest { organization_id, ..Default::default() };
            let listed = session.ask("could not list the modules", app_service::LIST_MODULES, &request)?;
            output.list(
                &listed.modules,
                ["id", "visibility", "newest", "machines", "description"],
                "There is no module yet; make one with `module create NAME`.",
                |one| {
                    let newest = one.versions.last().map_or("-", |version| &version.version);
                    [
                        one.module_id.clone(),
                        visibility_of(one.visibility()).to_owned(),
                        newest.to_owned(),
                        one.total_robot_usage.to_string(),
                        one.description.lines().next().unwrap_or_default().to_owned(),
                    ]
                },
            )
        }
        Verb::Get { module } => show(output, &get(session, id_of(session, &module)?)?),
        Verb::Create { name } => {
            let organization_id = find::organization(session, None)?.id;
            let request = app::CreateModuleRequest { organization_id, name };
            let made = session.change("could not make the module", app_service::CREATE_MODULE, &request)?;
            let facts = [("id", made.module_id.clone()), ("url", made.url.clone())];
            output.one(&made, &facts)
        }
        Verb::Update { module, meta, readme, visibility, description, url, entrypoint } => {
            let meta = meta.map(|file| Meta::read(&read_text(&file)?)).transpose()?;
            let readme = readme.map(|file| read_text(&file)).transpose()?;
            let before = get(session, id_of(session, &module)?)?;
            let given = Meta { description, url, entrypoint, ..Meta::default() };
            let visibility = visibility.map(app::Visibility::from);
            let request = changed(before, meta.unwrap_or_default(), given, (visibility, readme))?;
            let module_id = request.module_id.clone();
            session.change("could not change the module", app_service::UPDATE_MODULE, &request)?;
            show(output, &get(session, module_id)?)
        }
        Verb::Upload { module, file, version, platform, tags } => {
            // Before a large file travels in vain.
            let module = get(session, id_of(session, &module)?)?;
            let info = app::ModuleFileInfo { module_id: module.module_id, version, platform, platform_tags: tags };
            upload(session, output, &file, info)
        }
        Verb::File { module, version, platform } => {
            let found = package(session, id_of(session, &module)?, version, platform)?;
            let about = found.info.clone().unwrap_or_default();
            let size = about.files.first().map_or(0, |file| file.size);
            let facts = [
                ("version", about.version),
                ("platform", about.platform.unwrap_or_default()),
                ("url", found.url.clone()),
                ("bytes", size.to_string()),
                ("sha256", found.checksum.clone()),
                ("uploaded", moment(found.created_on.as_ref())),
            ];
            output.one(&found, &facts)
        }
        Verb::Download { module, version, platform, to } => {
            let found = package(session, id_of(session, &module)?, version, platform)?;
            download::run(session, output, &found, to)
        }
        Verb::Delete { module } => registry::delete(session, output, &module, "module"),
    }
}

fn upload(session: &Session, output: &mut Output, file: &PathBuf, info: app::ModuleFileInfo) -> Result<(), Failure> {
    let mut upload = Upload::open(file, info.clone()).map_err(Failure::file(file))?;
    let doing = "could not upload the file";
    let done = session.send(doing, app_service::UPLOAD_MODULE_FILE, upload.by_ref())?;
    let (digest, sent) = (upload.digest(), upload.sent);
    // What the server keeps is what was read here, or something on the way is broken.
    let kept = package(session, info.module_id.clone(), info.version.clone(), Some(info.platform.clone()))?.checksum;
    if kept != digest {
        return Err(Failure::Found(format!(
            "the server keeps {kept}, and what was sent is {digest}: delete the version's module and upload again"
        )));
    }
    let sentence = format!(
        "{} {} for {} is uploaded: {sent} bytes, sha256 {digest}.\n{}",
        info.module_id, info.version, info.platform, done.url
    );
    if output.is_json() {
        let object = json!({
            "module_id": info.module_id, "version": info.version, "platform": info.platform,
            "bytes": sent, "sha256": digest, "url": done.url,
        });
        return output.json(&object);
    }
    sentence.lines().try_for_each(|line| output.line(&crate::output::plain(line)))
}

fn get(session: &Session, module_id: String) -> Result<app::Module, Failure> {
    let request = app::GetModuleRequest { module_id, include_markdown_documentation: Some(true) };
    let found = session.ask("could not read the module", app_service::GET_MODULE, &request)?;
    Ok(found.module.unwrap_or_default())
}

fn package(
    session: &Session,
    id: String,
    version: String,
    platform: Option<String>,
) -> Result<packages::Package, Failure> {
    let request = packages::GetPackageRequest { id, version, platform, include_url: Some(true), ..Default::default() };
    let found = session.ask("could not find the file", package_service::GET_PACKAGE, &request)?;
    Ok(found.package.unwrap_or_default())
}

/// What the module says of itself from now on: the options, over its meta.json, over what it said before.
fn changed(
    before: app::Module,
    meta: Meta,
    given: Meta,
    (visibility, readme): (Option<app::Visibility>, Option<String>),
) -> Result<app::UpdateModuleRequest, Failure> {
    let visibility = match visibility {
        Some(visibility) => Some(visibility),
        None => meta.visibility()?,
    };
    Ok(app::UpdateModuleRequest {
        module_id: before.module_id,
        visibility: visibility.map_or(before.visibility, i32::from),
        url: given.url.or(meta.url).unwrap_or(before.url),
        description: given.description.or(meta.description).unwrap_or(before.description),
        models: meta.models.map_or(before.models, |models| models.into_iter().map(Into::into).collect()),
        entrypoint: given.entrypoint.or(meta.entrypoint).unwrap_or(before.entrypoint),
        first_run: meta.first_run,
        apps: meta.applications.into_iter().map(Into::into).collect(),
        markdown_description: readme,
    })
}

fn show(output: &mut Output, one: &app::Module) -> Result<(), Failure> {
    let models: Vec<&str> = one.models.iter().map(|model| &*model.model).collect();
    let apps: Vec<&str> = one.apps.iter().map(|app| &*app.name).collect();
    let facts = [
        ("id", one.module_id.clone()),
        ("visibility", visibility_of(one.visibility()).to_owned()),
        ("description", one.description.clone()),
        ("url", one.url.clone()),
        ("entrypoint", one.entrypoint.clone()),
        ("models", models.join(", ")),
        ("apps", apps.join(", ")),
        ("machines", one.total_robot_usage.to_string()),
    ];
    if output.is_json() || one.versions.is_empty() {
        return output.one(one, &facts);
    }
    output.facts(&facts)?;
    output.line("")?;
    let files = one.versions.iter().flat_map(|version| version.files.iter().map(move |file| (version, file)));
    let row = |(version, file): (&app::VersionHistory, &app::Uploads)| {
        [version.version.clone(), file.platform.clone(), moment(file.uploaded_at.as_ref())]
    };
    output.table(["version", "platform", "uploaded"], files.map(row).collect())
}
