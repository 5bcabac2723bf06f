//! A composed document as the message a machine server reads.
//!
//! The document is JSON that people write; the message has a place for most of it. What has none, or is of another
//! kind than the message wants, is left out: the machine server complains about what it misses.

use std::collections::HashMap;

use api::pb::platform::app::v1::{
    AppValidationStatus, CloudConfig, ComponentConfig, Frame, JobConfig, LogConfiguration, LogPatternConfig,
    ModuleConfig, NetworkConfig, Orientation, PackageConfig, ProcessConfig, RemoteConfig, ResourceLevelServiceConfig,
    RobotConfig, ServiceConfig, Translation,
    orientation::{self, AxisAngles, EulerAngles, OrientationVectorDegrees, OrientationVectorRadians, Quaternion},
};
use prost_types::Struct;
use serde_json::{Map, Value};

use crate::{
    authz::{Granted, Part, right::ActAsDevice},
    compose::{Composed, wire},
};

/// The message.
pub(super) fn from_composed(part: &Granted<Part, ActAsDevice>, composed: &Composed) -> RobotConfig {
    let document = Fields(&composed.config);
    let chain = part.chain();
    RobotConfig {
        cloud: Some(CloudConfig {
            id: part.id().into(),
            location_id: chain.locations.first().map(|location| location.to_string()).unwrap_or_default(),
            machine_id: chain.machine.as_deref().unwrap_or_default().into(),
            primary_org_id: part.organization().into(),
            ..CloudConfig::default()
        }),
        components: document.objects("components", component),
        services: document.objects("services", service),
        remotes: document.objects("remotes", remote),
        processes: document.objects("processes", process),
        modules: document.objects("modules", module),
        packages: document.objects("packages", package),
        jobs: document.objects("jobs", job),
        log: document.objects("log", |log| LogPatternConfig { pattern: log.text("pattern"), level: log.text("level") }),
        network: document.object("network").map(network),
        debug: document.maybe_flag("debug"),
        disable_partial_start: document.maybe_flag("disable_partial_start"),
        enable_web_profile: document.flag("enable_web_profile"),
        disable_log_deduplication: document.flag("disable_log_deduplication"),
        overwrite_fragment_status: composed
            .complaints
            .iter()
            .map(|complaint| AppValidationStatus { error: complaint.to_string() })
            .collect(),
        revision: composed.revision.clone(),
        ..RobotConfig::default()
    }
}

fn component(of: Fields<'_>) -> ComponentConfig {
    ComponentConfig {
        name: of.text("name"),
        namespace: of.text("namespace"),
        r#type: of.text("type"),
        model: of.text("model"),
        frame: of.object("frame").map(frame),
        depends_on: of.texts("depends_on"),
        service_configs: of.objects("service_configs", service_level),
        attributes: of.structure("attributes"),
        api: of.text("api"),
        log_configuration: log_level(of),
    }
}

fn service(of: Fields<'_>) -> ServiceConfig {
    ServiceConfig {
        name: of.text("name"),
        namespace: of.text("namespace"),
        r#type: of.text("type"),
        attributes: of.structure("attributes"),
        depends_on: of.texts("depends_on"),
        model: of.text("model"),
        api: of.text("api"),
        service_configs: of.objects("service_configs", service_level),
        log_configuration: log_level(of),
    }
}

fn service_level(of: Fields<'_>) -> ResourceLevelServiceConfig {
    ResourceLevelServiceConfig { r#type: of.text("type"), attributes: of.structure("attributes") }
}

fn log_level(of: Fields<'_>) -> Option<LogConfiguration> {
    of.object("log_configuration").map(|log| LogConfiguration { level: log.text("level") })
}

fn frame(of: Fields<'_>) -> Frame {
    let translation = of.object("translation");
    Frame {
        parent: of.text("parent"),
        translation: translation.map(|of| Translation { x: of.number("x"), y: of.number("y"), z: of.number("z") }),
        orientation: of.object("orientation").and_then(orientation),
        ..Frame::default()
    }
}

fn orientation(of: Fields<'_>) -> Option<Orientation> {
    let value = of.object("value")?;
    let [x, y, z, th] = ["x", "y", "z", "th"].map(|axis| value.number(axis));
    let kind = match of.text("type").as_str() {
        "ov_degrees" => orientation::Type::VectorDegrees(OrientationVectorDegrees { theta: th, x, y, z }),
        "ov_radians" => orientation::Type::VectorRadians(OrientationVectorRadians { theta: th, x, y, z }),
        "axis_angles" => orientation::Type::AxisAngles(AxisAngles { theta: th, x, y, z }),
        "euler_angles" => {
            let [roll, pitch, yaw] = ["roll", "pitch", "yaw"].map(|angle| value.number(angle));
            orientation::Type::EulerAngles(EulerAngles { roll, pitch, yaw })
        }
        "quaternion" => orientation::Type::Quaternion(Quaternion { w: value.number("w"), x, y, z }),
        _ => return None,
    };
    Some(Orientation { r#type: Some(kind) })
}

fn remote(of: Fields<'_>) -> RemoteConfig {
    RemoteConfig {
        name: of.text("name"),
        address: of.text("address"),
        frame: of.object("frame").map(frame),
        insecure: of.flag("insecure"),
        service_configs: of.objects("service_configs", service_level),
        secret: of.text("secret"),
        prefix: of.text("prefix"),
        ..RemoteConfig::default()
    }
}

fn process(of: Fields<'_>) -> ProcessConfig {
    ProcessConfig {
        id: of.text("id"),
        name: of.text("name"),
        args: of.texts("args"),
        cwd: of.text("cwd"),
        one_shot: of.flag("one_shot"),
        log: of.flag("log"),
        stop_signal: of.number("stop_signal") as i32,
        env: of.words("env"),
        username: of.text("username"),
        ..ProcessConfig::default()
    }
}

fn module(of: Fields<'_>) -> ModuleConfig {
    ModuleConfig {
        name: of.text("name"),
        path: of.text("executable_path"),
        log_level: of.text("log_level"),
        r#type: of.text("type"),
        module_id: of.text("module_id"),
        env: of.words("env"),
        tcp_mode: of.flag("tcp_mode"),
        ..ModuleConfig::default()
    }
}

fn package(of: Fields<'_>) -> PackageConfig {
    PackageConfig {
        name: of.text("name"),
        package: of.text("package"),
        version: of.text("version"),
        r#type: of.text("type"),
        status: None,
    }
}

fn job(of: Fields<'_>) -> JobConfig {
    JobConfig {
        name: of.text("name"),
        schedule: of.text("schedule"),
        resource: of.text("resource"),
        method: of.text("method"),
        command: of.structure("command"),
        log_configuration: log_level(of),
    }
}

fn network(of: Fields<'_>) -> NetworkConfig {
    NetworkConfig {
        fqdn: of.text("fqdn"),
        bind_address: of.text("bind_address"),
        tls_cert_file: of.text("tls_cert_file"),
        tls_key_file: of.text("tls_key_file"),
        no_tls: of.flag("no_tls"),
        ..NetworkConfig::default()
    }
}

/// An object of the document, read as what the message wants; anything else reads as nothing.
#[derive(Clone, Copy)]
struct Fields<'d>(&'d Map<String, Value>);

impl<'d> Fields<'d> {
    fn text(self, name: &str) -> String {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn texts(self, name: &str) -> Vec<String> {
        self.list(name).filter_map(|element| element.as_str().map(str::to_owned)).collect()
    }

    fn words(self, name: &str) -> HashMap<String, String> {
        let object = self.object(name).map(|object| object.0.iter()).into_iter().flatten();
        object.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    fn number(self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or_default()
    }

    fn maybe_flag(self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    fn flag(self, name: &str) -> bool {
        self.maybe_flag(name).unwrap_or_default()
    }

    fn object(self, name: &str) -> Option<Fields<'d>> {
        self.0.get(name).and_then(Value::as_object).map(Fields)
    }

    fn structure(self, name: &str) -> Option<Struct> {
        self.object(name).map(|object| wire::to_struct(object.0))
    }

    fn objects<T>(self, name: &str, read: impl Fn(Fields<'d>) -> T) -> Vec<T> {
        self.list(name).filter_map(Value::as_object).map(|object| read(Fields(object))).collect()
    }

    fn list(self, name: &str) -> impl Iterator<Item = &'d Value> + use<'d> {
        self.0.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
    }
}
