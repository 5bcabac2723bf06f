//! `app`: web applications that modules bring, as a browser finds them. They are declared by `module update --meta`.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;

use crate::{failure::Failure, output::Output, session::Session};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show where its content is
    Content {
        /// Public namespace of the organization
        namespace: String,
        /// Name of the application
        name: String,
    },
    /// Show how it looks before anybody has signed in
    Branding {
        /// Public namespace of the organization
        namespace: String,
        /// Name of the application
        name: String,
    },
}

pub(super) fn run(session: &Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::Content { namespace, name } => {
            let request = app::GetAppContentRequest { public_namespace: namespace.clone(), name: name.clone() };
            let found = session.ask("could not find the application", app_service::GET_APP_CONTENT, &request)?;
            let kind = match found.app_type() {
                app::AppType::SingleMachine => "for one machine",
                app::AppType::MultiMachine => "for several machines",
                app::AppType::Unspecified => "-",
            };
            let lines = [
                ("content", found.blob_path.clone()),
                ("entrypoint", found.entrypoint.clone()),
                ("kind", kind.to_owned()),
                ("public", if found.public { "yes" } else { "no" }.to_owned()),
            ];
            output.one(&found, &lines)
        }
        Verb::Branding { namespace, name } => {
            let request = app::GetAppBrandingRequest { public_namespace: namespace.clone(), name: name.clone() };
            let found = session.ask("could not find the application", app_service::GET_APP_BRANDING, &request)?;
            let mut texts: Vec<String> = found
                .text_customizations
                .iter()
                .flat_map(|(page, texts)| texts.fields.iter().map(move |(name, text)| format!("{page}.{name}: {text}")))
                .collect();
            texts.sort();
            let lines = [
                ("logo", found.logo_path.clone().unwrap_or_else(|| "-".to_owned())),
                ("texts", texts.join("; ")),
                ("fragments", found.fragment_ids.join(", ")),
                ("for", found.allowed_org_ids.join(", ")),
            ];
            output.one(&found, &lines)
        }
    }
}
