//! A fleet server as one device sees it: configuration, restart mark, status, and a log store that notices everything.
//!
//! Owns what the server remembers, and how it behaves: well, silent, refusing, broken, or answering with nonsense. The
//! log store is an invariant of its own: a batch out of order, changed on a repeat, or beyond a gap fails the test in
//! which it happens.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use actors::cloud::port::{Cloud, CloudError};
use api::brand;
use api::pb::platform::{
    app::{
        agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
        v1::{NeedsRestartRequest, NeedsRestartResponse},
    },
    common::v1::LogEntry,
    fleet::v1::{
        DeviceStatus, ReportRequest, ReportResponse, UpdateRetry, UpdateStatus, UploadLogsRequest, UploadLogsResponse,
    },
};
use async_trait::async_trait;
use board_sim::{Random, SimClock, SimFiles, SimWeb};
use prost_types::Struct;
use serde_json::Value;

/// The part that the simulated device is.
pub const PART_ID: &str = "part-0";
/// What the simulated device shows to be believed.
pub const SECRET: &str = "simulated part secret";
/// How often the server wants to be asked.
pub const POLL: Duration = Duration::from_secs(5);
/// How long the bridge to the server waits for an answer before it gives up.
const CALL_MAX: Duration = Duration::from_secs(20);

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    Well,
    /// Connections open and nobody answers.
    Silent,
    /// Every call ends with this gRPC status.
    Error(i32),
    /// The part's credentials are no longer accepted.
    RefusesCredentials,
    /// Answers are of the right type and make no sense.
    Nonsense,
    /// Calls of this kind are carried out and the answers get lost, this many times.
    LosesAnswers(Call, u32),
}

/// Which call it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `DeviceAgentConfig`
    Config,
    /// `NeedsRestart`
    NeedsRestart,
    /// `Report`
    Report,
    /// `UploadLogs`
    UploadLogs,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 4] = [Call::Config, Call::NeedsRestart, Call::Report, Call::UploadLogs];
}

/// One log line as the server keeps it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// When it arrived, after the beginning of the world.
    pub at: Duration,
    /// The batch that brought it.
    pub batch: u64,
    /// The line.
    pub entry: LogEntry,
}

#[derive(Default)]
struct Spool {
    acknowledged: u64,
    last: Vec<LogEntry>,
}

struct Inner {
    clock: SimClock,
    web: SimWeb,
    random: Random,
    mood: Cell<Mood>,
    identity: RefCell<Option<String>>,
    /// Where the device has its credentials file, and the ones that the server believes.
    disk: SimFiles,
    /// The secret that was shown last.
    shown: RefCell<Option<String>>,
    config: RefCell<DeviceAgentConfigResponse>,
    /// When somebody marked the part for restart (wall time, milliseconds).
    mark: Cell<Option<i64>>,
    /// The mark was told to the device; the next question clears it.
    mark_told: Cell<bool>,
    /// An operator wants the machine server's update tried again; of this edition.
    retry: Cell<u64>,
    poll: Cell<Duration>,
    /// Whether the configuration that the device was given last switches its machine server off.
    off: Cell<bool>,
    report: RefCell<Option<(Duration, DeviceStatus)>>,
    calls: RefCell<Vec<(Duration, Call)>>,
    attempts: RefCell<Vec<Duration>>,
    spools: RefCell<BTreeMap<String, Spool>>,
    lines: RefCell<Vec<Kept>>,
    repeats: Cell<u64>,
}

/// The fleet server, as the test sees it.
#[derive(Clone)]
pub struct SimCloud {
    inner: Rc<Inner>,
}

impl SimCloud {
    /// A server that knows one part and has nothing to say to it.
    #[must_use]
    pub fn new(clock: &SimClock, web: &SimWeb, disk: &SimFiles, random: Random) -> Self {
        let config = DeviceAgentConfigResponse { check_interval: Some(seconds(POLL)), ..Default::default() };
        SimCloud {
            inner: Rc::new(Inner {
                clock: clock.clone(),
                web: web.clone(),
                random,
                mood: Cell::new(Mood::Well),
                identity: RefCell::new(Some(PART_ID.to_owned())),
                disk: disk.clone(),
                shown: RefCell::default(),
                config: RefCell::new(config),
                mark: Cell::new(None),
                mark_told: Cell::new(false),
                retry: Cell::new(0),
                poll: Cell::new(POLL),
                off: Cell::new(false),
                report: RefCell::default(),
                calls: RefCell::default(),
                attempts: RefCell::default(),
                spools: RefCell::default(),
                lines: RefCell::default(),
                repeats: Cell::new(0),
            }),
        }
    }

    /// From now on it behaves like this.
    pub fn set_mood(&self, mood: Mood) {
        self.inner.mood.set(mood);
    }

    /// The device has credentials, or not.
    pub fn set_identity(&self, identity: Option<&str>) {
        self.inner.identity.replace(identity.map(str::to_owned));
    }

    /// Sets one section of the `agent` object, as `UpdateRobotPart` would. Sections: `version_control`,
    /// `advanced_settings`, `network_configuration`, `additional_networks`, `system_configuration`.
    ///
    /// # Panics
    /// When there is no such section, or the value is no object.
    pub fn set_section(&self, section: &str, value: &Value) {
        let mut config = self.inner.config.borrow_mut();
        let object = || struct_of(value);
        match section {
            "advanced_settings" => {
                let kept = config.advanced_settings.as_mut().and_then(|old| old.fields.remove("version_control"));
                let mut new = object();
                new.fields.extend(kept.map(|kept| ("version_control".to_owned(), kept)));
                config.advanced_settings = Some(new);
            }
            // The wire has no place of its own for it: it travels inside the advanced settings.
            "version_control" => {
                let settings = config.advanced_settings.get_or_insert_default();
                settings.fields.insert(section.to_owned(), value_of(value));
            }
            "network_configuration" => config.network_configuration = Some(object()),
            "additional_networks" => config.additional_networks = Some(object()),
            "system_configuration" => config.system_configuration = Some(object()),
            _ => panic!("{section} is no section of the agent's configuration"),
        }
    }

    /// How often it wants to be asked from now on.
    pub fn set_poll(&self, poll: Duration) {
        self.inner.poll.set(poll);
        self.inner.config.borrow_mut().check_interval = Some(seconds(poll));
    }

    /// Replaces the whole answer.
    pub fn set_config(&self, config: DeviceAgentConfigResponse) {
        self.inner.config.replace(config);
    }

    /// Somebody wants the machine server restarted.
    pub fn mark_for_restart(&self) {
        self.inner.mark.set(Some(self.inner.clock.wall_clock().as_millis()));
        self.inner.mark_told.set(false);
    }

    /// Somebody wants the versions tried again that failed.
    pub fn want_retry(&self) {
        self.inner.retry.set(self.inner.retry.get() + 1);
    }

    /// Whether the mark still stands.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.inner.mark.get().is_some()
    }

    /// What the device told about itself last, and when.
    #[must_use]
    pub fn report(&self) -> Option<(Duration, DeviceStatus)> {
        self.inner.report.borrow().clone()
    }

    /// Whether the device, as far as it can know, has its machine server switched off: it may have heard nothing since.
    pub(super) fn has_told_off(&self) -> bool {
        self.inner.off.get()
    }

    /// The last report.
    ///
    /// # Panics
    /// When there was none.
    #[must_use]
    pub fn status(&self) -> DeviceStatus {
        self.report().expect("the device has reported").1
    }

    /// Every call that was answered, and when.
    #[must_use]
    pub fn calls(&self) -> Vec<(Duration, Call)> {
        self.inner.calls.borrow().clone()
    }

    /// How often the device tried to call since then, answered or not.
    #[must_use]
    pub fn attempts_since(&self, since: Duration) -> usize {
        self.inner.attempts.borrow().iter().filter(|&&at| at >= since).count()
    }

    /// How many calls of this kind were answered.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.inner.calls.borrow().iter().filter(|(_, made)| *made == call).count()
    }

    /// Every log line kept, in the order of arrival.
    #[must_use]
    pub fn lines(&self) -> Vec<Kept> {
        self.inner.lines.borrow().clone()
    }

    /// The log lines from the `from`th on.
    pub(super) fn lines_from(&self, from: usize) -> Vec<Kept> {
        self.inner.lines.borrow().get(from..).unwrap_or_default().to_vec()
    }

    /// Batches that came again and were dropped.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        self.inner.repeats.get()
    }

    /// Waits as a call waits, and says whether it reaches a server that can answer.
    async fn travel(&self) -> Result<(), CloudError> {
        let Inner { clock, web, mood, random, attempts, .. } = &*self.inner;
        attempts.borrow_mut().push(clock.elapsed());
        let Some(shown) = self.shown() else {
            return Err(CloudError::NoIdentity { reason: "there is no credentials file".into() });
        };
        self.inner.shown.replace(Some(shown.clone()));
        let unreachable = |reason: &str| CloudError::Unreachable { reason: reason.to_owned() };
        let latency = web.latency() + Duration::from_micros(random.below(2_000));
        if latency > CALL_MAX {
            clock.sleep(CALL_MAX).await;
            return Err(unreachable("no answer in time"));
        }
        clock.sleep(latency).await;
        if !web.is_online() || web.is_captive() {
            return Err(unreachable("no route to host"));
        }
        if shown != SECRET {
            return Err(CloudError::CredentialsRefused { reason: "unknown secret".into() });
        }
        match mood.get() {
            Mood::Silent => {
                clock.sleep(CALL_MAX - latency).await;
                Err(unreachable("no answer in time"))
            }
            Mood::Error(code) => Err(CloudError::Refused { code, reason: "something is broken here".into() }),
            Mood::RefusesCredentials => Err(CloudError::CredentialsRefused { reason: "unknown secret".into() }),
            Mood::Well | Mood::Nonsense | Mood::LosesAnswers(..) => Ok(()),
        }
    }

    /// The way back: an answer that was given may still get lost.
    fn answered<T>(&self, call: Call, answer: T) -> Result<T, CloudError> {
        self.inner.calls.borrow_mut().push((self.inner.clock.elapsed(), call));
        match self.inner.mood.get() {
            Mood::LosesAnswers(lost, left) if lost == call => {
                self.inner.mood.set(if left > 1 { Mood::LosesAnswers(lost, left - 1) } else { Mood::Well });
                Err(CloudError::Unreachable { reason: "connection reset".into() })
            }
            _ => Ok(answer),
        }
    }

    /// The secret in the device's credentials file, if it has a whole one.
    fn shown(&self) -> Option<String> {
        self.inner.identity.borrow().as_ref()?;
        let file: Value = serde_json::from_slice(&self.inner.disk.content(brand::CREDENTIALS_FILE)?).ok()?;
        Some(file.get("cloud")?.get("secret")?.as_str()?.to_owned())
    }

    /// When the machine server started, by the server's clock: by how long ago that was on the device's.
    fn started_at(&self, status: &DeviceStatus) -> Option<i64> {
        let millis = |at: &prost_types::Timestamp| at.seconds * 1_000 + i64::from(at.nanos) / 1_000_000;
        let started = status.server.as_ref()?.started_at.as_ref().map(millis)?;
        let ago = status.device_time.as_ref().map(millis)?.saturating_sub(started).max(0);
        Some(self.inner.clock.wall_clock().as_millis() - ago)
    }

    fn is_nonsense(&self) -> bool {
        self.inner.mood.get() == Mood::Nonsense
    }

    fn check_part(id: &str) {
        assert_eq!(id, PART_ID, "a device speaks for itself only");
    }
}

#[async_trait(?Send)]
impl Cloud for SimCloud {
    fn part_id(&self) -> Option<String> {
        self.shown().and(self.inner.identity.borrow().clone())
    }

    fn is_renewed(&self) -> bool {
        self.shown().is_some_and(|now| self.inner.shown.borrow().as_ref() != Some(&now))
    }

    async fn device_config(&self, request: DeviceAgentConfigRequest) -> Result<DeviceAgentConfigResponse, CloudError> {
        self.travel().await?;
        Self::check_part(&request.id);
        let answer = if self.is_nonsense() { nonsense(&self.inner.random) } else { self.inner.config.borrow().clone() };
        let off = is_off(&answer);
        let answer = self.answered(Call::Config, answer)?;
        self.inner.off.set(off);
        Ok(answer)
    }

    async fn needs_restart(&self, request: NeedsRestartRequest) -> Result<NeedsRestartResponse, CloudError> {
        self.travel().await?;
        Self::check_part(&request.id);
        if self.inner.mark_told.replace(false) {
            self.inner.mark.set(None);
        }
        let must_restart = self.inner.mark.get().is_some();
        self.inner.mark_told.set(must_restart);
        let restart_check_interval = if self.is_nonsense() {
            Some(prost_types::Duration { seconds: -5, nanos: i32::MIN })
        } else {
            Some(seconds(self.inner.poll.get()))
        };
        self.answered(Call::NeedsRestart, NeedsRestartResponse { id: request.id, must_restart, restart_check_interval })
    }

    async fn report(&self, request: ReportRequest) -> Result<ReportResponse, CloudError> {
        self.travel().await?;
        Self::check_part(&request.part_id);
        let status = request.status.expect("a report without a status says nothing");
        if self.inner.mark.get().zip(self.started_at(&status)).is_some_and(|(mark, started)| started > mark) {
            self.inner.mark.set(None);
        }
        if request.restart_answer_lost {
            self.inner.mark_told.set(false);
        }
        let edition = self.inner.retry.get();
        let is_open = |update: &&UpdateStatus| !update.wanted.is_empty() && update.retried < edition;
        let retry = |update: &UpdateStatus| UpdateRetry { product: update.product, edition };
        let retries = status.updates.iter().filter(is_open).map(retry).collect();
        self.inner.report.replace(Some((self.inner.clock.elapsed(), status)));
        self.answered(Call::Report, ReportResponse { retries })
    }

    async fn upload_logs(&self, request: UploadLogsRequest) -> Result<UploadLogsResponse, CloudError> {
        self.travel().await?;
        Self::check_part(&request.part_id);
        if self.is_nonsense() {
            // That it keeps nothing. Had it said that it keeps everything, nobody could blame the device for the loss.
            return self.answered(Call::UploadLogs, UploadLogsResponse { acknowledged: 0 });
        }
        let UploadLogsRequest { spool_id, batch_number, logs, .. } = request;
        assert!(!logs.is_empty(), "an empty batch is not worth its number");
        let acknowledged = {
            let mut spools = self.inner.spools.borrow_mut();
            let spool = spools.entry(spool_id).or_default();
            if batch_number == spool.acknowledged && batch_number > 0 {
                assert_eq!(logs, spool.last, "batch {batch_number} came again with other lines");
                self.inner.repeats.set(self.inner.repeats.get() + 1);
            } else {
                assert_eq!(batch_number, spool.acknowledged + 1, "batches come one after the other");
                let at = self.inner.clock.elapsed();
                let kept = logs.iter().map(|entry| Kept { at, batch: batch_number, entry: entry.clone() });
                self.inner.lines.borrow_mut().extend(kept);
                spool.acknowledged = batch_number;
                spool.last = logs;
            }
            spool.acknowledged
        };
        self.answered(Call::UploadLogs, UploadLogsResponse { acknowledged })
    }
}

/// Whether it switches the machine server off.
fn is_off(config: &DeviceAgentConfigResponse) -> bool {
    let settings = config.advanced_settings.as_ref();
    let value = settings.and_then(|settings| settings.fields.get("disable_platform_server")?.kind.as_ref());
    matches!(value, Some(prost_types::value::Kind::BoolValue(true)))
}

fn seconds(duration: Duration) -> prost_types::Duration {
    prost_types::Duration { seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), nanos: 0 }
}

/// A JSON object as it travels.
///
/// # Panics
/// When it is no object.
#[must_use]
pub fn struct_of(value: &Value) -> Struct {
    let object = value.as_object().expect("a section is an object");
    Struct { fields: object.iter().map(|(key, value)| (key.clone(), value_of(value))).collect() }
}

fn value_of(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(prost_types::ListValue { values: items.iter().map(value_of).collect() }),
        Value::Object(_) => Kind::StructValue(struct_of(value)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// Everything where it should not be.
fn nonsense(random: &Random) -> DeviceAgentConfigResponse {
    use prost_types::value::Kind;
    let leaf = || prost_types::Value {
        kind: match random.below(6) {
            0 => None,
            1 => Some(Kind::NumberValue(f64::NAN)),
            2 => Some(Kind::NumberValue(-1e300)),
            3 => Some(Kind::StringValue("\u{0}\u{fffd}".repeat(200))),
            4 => Some(Kind::ListValue(prost_types::ListValue::default())),
            _ => Some(Kind::BoolValue(true)),
        },
    };
    let keys = [
        "disable_platform_server",
        "platform_server_env",
        "platform_server_start_timeout_minutes",
        "version_control",
        "maintenance",
        "wait_for_update_check",
        "debug",
        "hotspot_prefix",
        "",
    ];
    // A disabling value that is well-formed would be an order, not nonsense.
    let section = || {
        let fields = keys.iter().map(|key| ((*key).to_owned(), leaf()));
        let orderly = |value: &prost_types::Value| matches!(value.kind, Some(Kind::BoolValue(_)));
        Some(Struct { fields: fields.filter(|(_, value)| !orderly(value)).collect() })
    };
    DeviceAgentConfigResponse {
        check_interval: Some(prost_types::Duration { seconds: i64::MIN, nanos: -1 }),
        advanced_settings: section(),
        network_configuration: section(),
        additional_networks: section(),
        system_configuration: section(),
        ..Default::default()
    }
}
