//! Which request gets what, and what it means.
//!
//! The order is the defence: who is not on the hotspot is refused; then the services and questions that are asked under
//! any name; then every name but our own address is sent to it, so that a form can only be seen and sent here; then the
//! form's token. Names of visitors are never sent back.

use std::borrow::Cow;

use board::doorway::{Request, Response};

use super::{
    Answer, Permits, Portal, Visits,
    forms::Form,
    grpc,
    html::{self, Problem, Typed, View},
    probes,
};
use crate::provisioning::{
    identity,
    visit::{self, Door, Identity, Mistyped, Visit},
    welcome::{Attempt, Result, Welcome},
};

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A request whose visitor, host and path have been looked at.
struct Asked<'a> {
    request: &'a Request,
    welcome: &'a Welcome,
    visitor: u32,
    token: String,
    /// The page's script asks, not a browser on its own.
    by_script: bool,
    /// A person sees the answer.
    by_person: bool,
}

pub(super) fn answer(portal: &mut Portal, request: &Request, welcome: &Welcome, permits: Permits<'_>) -> Answer {
    let Some(visitor) = portal.visitor(request) else {
        return only(text(403, "this page is for who is on the device's hotspot"));
    };
    let (host, path) = address(request);
    let ours = portal.is_ours(&host);
    if let Some(call) = grpc::Call::of(request, path) {
        let (response, visits) = call.answer(welcome, permits, || portal.comes(visitor));
        return Answer { response, visits };
    }
    let agent = request.header("user-agent").unwrap_or_default();
    let looks = matches!(&*request.method, "GET" | "HEAD");
    if let Some(probe) = probes::find(&host, path, agent, ours).filter(|_| looks) {
        let free = probe.free().filter(|_| html::is_done(welcome));
        return only(free.unwrap_or_else(|| portal.to_the_page()));
    }
    if looks && portal.site.captive_api.as_ref().is_some_and(|url| is_at(url, &host, path)) {
        return only(portal.captive_api(welcome));
    }
    if !ours {
        return only(if looks { portal.to_the_page() } else { text(421, "nobody of that name is here") });
    }
    let accepts = request.header("accept").unwrap_or_default();
    let asked = Asked {
        request,
        welcome,
        visitor,
        token: portal.token(visitor).expose().to_owned(),
        by_script: accepts.starts_with(JSON),
        by_person: accepts.contains("text/html") && !probes::is_system(agent),
    };
    match (&*request.method, path) {
        ("GET" | "HEAD", "/") => portal.page(&asked),
        ("GET" | "HEAD", "/state") => only(portal.shown(&View::plain(portal, &asked), 200, true)),
        ("GET" | "HEAD", _) if asked.by_person => only(portal.to_the_page()),
        ("GET" | "HEAD", _) => only(text(404, "there is one page here: /")),
        ("POST", _) => portal.form(&asked, path, permits),
        _ => {
            let mut response = text(405, "the page is got, its forms are posted");
            response.headers.push(("Allow", Cow::Borrowed("GET, HEAD, POST")));
            only(response)
        }
    }
}

/// Host and path: the host in small letters without port and last dot, the path without its query.
fn address(request: &Request) -> (String, &str) {
    let (host, path) = match request.target.split_once("://") {
        Some((_, rest)) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            rest.split_at_checked(end).unwrap_or((rest, ""))
        }
        None => (request.header("host").unwrap_or_default(), &*request.target),
    };
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let path = path.split('?').next().unwrap_or_default();
    (host.trim_end_matches('.').to_ascii_lowercase(), if path.is_empty() { "/" } else { path })
}

/// Whether this https URL is at this host and path.
fn is_at(url: &str, host: &str, path: &str) -> bool {
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let name = authority.split(':').next().unwrap_or_default();
    let wanted = rest.split('?').next().unwrap_or_default();
    host.eq_ignore_ascii_case(name) && path == if wanted.is_empty() { "/" } else { wanted }
}

const fn only(response: Response) -> Answer {
    Answer { response, visits: Visits::new() }
}

fn did(response: Response, visits: impl IntoIterator<Item = Visit>) -> Answer {
    Answer { response, visits: visits.into_iter().map(|visit| (Door::Portal, visit)).take(3).collect() }
}

fn text(status: u16, sentence: &'static str) -> Response {
    let headers = vec![("Content-Type", Cow::Borrowed(TEXT)), ("Cache-Control", Cow::Borrowed("no-store"))];
    Response { status, headers, body: Cow::Borrowed(sentence.as_bytes()) }
}

impl<'a> View<'a> {
    /// Nothing was typed and nothing is wrong.
    fn plain(portal: &'a Portal, asked: &'a Asked<'_>) -> View<'a> {
        View {
            welcome: asked.welcome,
            hotspot: &portal.site.hotspot,
            token: &asked.token,
            problem: None,
            typed: Typed::default(),
            notice: None,
            again: asked.request.target.ends_with("?again"),
        }
    }
}

impl Portal {
    fn is_ours(&self, host: &str) -> bool {
        host == self.site.address.ip().to_string()
    }

    /// What opens the sheet. Without a body: some phones take any body for an answer of the site they asked.
    fn to_the_page(&self) -> Response {
        let headers =
            vec![("Location", Cow::Owned(format!("{}/", self.base))), ("Cache-Control", Cow::Borrowed("no-store"))];
        Response { status: 302, headers, body: Cow::Borrowed(b"") }
    }

    fn captive_api(&self, welcome: &Welcome) -> Response {
        let json = match html::is_done(welcome) {
            true => r#"{"captive":false}"#.to_owned(),
            false => format!(r#"{{"captive":true,"user-portal-url":"{}/"}}"#, self.base),
        };
        let headers = vec![
            ("Content-Type", Cow::Borrowed("application/captive+json")),
            ("Cache-Control", Cow::Borrowed("private, no-store")),
        ];
        Response { status: 200, headers, body: Cow::Owned(json.into_bytes()) }
    }

    fn shown(&self, view: &View<'_>, status: u16, by_script: bool) -> Response {
        let mut headers = vec![
            ("Content-Type", Cow::Borrowed(if by_script { JSON } else { HTML })),
            ("Cache-Control", Cow::Borrowed("no-store")),
            ("X-Content-Type-Options", Cow::Borrowed("nosniff")),
            ("Referrer-Policy", Cow::Borrowed("same-origin")),
        ];
        if !by_script {
            headers.push(("Content-Security-Policy", Cow::Owned(self.policy.clone())));
            headers.push(("X-Frame-Options", Cow::Borrowed("DENY")));
        }
        let body = if by_script { view.state() } else { view.page() };
        Response { status, headers, body: Cow::Owned(body) }
    }

    fn page(&mut self, asked: &Asked<'_>) -> Answer {
        let came = asked.by_person && self.comes(asked.visitor);
        let saw = asked.by_person && asked.request.method == "GET" && html::has_ended(asked.welcome);
        let response = self.shown(&View::plain(self, asked), 200, false);
        did(response, [came.then_some(Visit::Came), saw.then_some(Visit::SawResult)].into_iter().flatten())
    }

    fn form(&self, asked: &Asked<'_>, path: &str, permits: Permits<'_>) -> Answer {
        let request = asked.request;
        let form = Form::read(request.header("content-type").unwrap_or_default(), &request.body);
        let Ok(form) = form else {
            return self.refused(asked, 400, Typed::default(), problem("this form could not be read: try again", ""));
        };
        let typed = Typed { network: form.text("network").to_owned(), name: form.text("name").to_owned() };
        if !self.is_from_here(asked, form.text("token")) {
            let sentence =
                "this page was from before the hotspot was opened again: check what you typed, and send it again";
            return self.refused(asked, 403, typed, problem(sentence, ""));
        }
        let permitted =
            |visit: &Visit| permits(Door::Portal, visit).map_err(|refused| problem(&refused.to_string(), ""));
        let one = |visit: Visit| permitted(&visit).map(|()| visit);
        let done = match path {
            "/touched" => one(Visit::Touched).map(|visit| did(nothing(), [visit])),
            "/seen" if html::has_ended(asked.welcome) => one(Visit::SawResult).map(|visit| did(nothing(), [visit])),
            "/seen" => Ok(only(nothing())),
            "/rescan" => one(Visit::Rescan).map(|visit| did(self.back(asked), [visit])),
            "/leave" => one(Visit::Leave).map(|visit| did(self.bye(asked), [visit])),
            "/join" => match given(&form) {
                Ok(visits) => visits.iter().try_for_each(permitted).map(|()| self.joining(asked, visits)),
                Err(mistake) => return self.refused(asked, 422, typed, mistake),
            },
            _ => return only(text(404, "there is one page here: /")),
        };
        done.unwrap_or_else(|refusal| self.refused(asked, 409, typed, refusal))
    }

    /// The token is ours, and the browser does not say that another page sends this.
    fn is_from_here(&self, asked: &Asked<'_>, token: &str) -> bool {
        let elsewhere = match asked.request.header("origin") {
            // What a sheet says that does not want to tell.
            None | Some("null") => false,
            Some(origin) => origin != self.base,
        };
        let across = asked.request.header("sec-fetch-site") == Some("cross-site");
        !elsewhere && !across && self.token(asked.visitor) == token.into()
    }

    fn refused(&self, asked: &Asked<'_>, status: u16, typed: Typed, problem: Problem) -> Answer {
        let view = View { problem: Some(problem), typed, ..View::plain(self, asked) };
        only(self.shown(&view, status, asked.by_script))
    }

    /// The page again: by its own address, so that loading it once more sends no form once more.
    fn back(&self, asked: &Asked<'_>) -> Response {
        if asked.by_script {
            return self.shown(&View::plain(self, asked), 200, true);
        }
        Response { status: 303, ..self.to_the_page() }
    }

    fn bye(&self, asked: &Asked<'_>) -> Response {
        let notice = Some("The setup is closed. The device tries the networks that it knows.");
        self.shown(&View { notice, ..View::plain(self, asked) }, 200, asked.by_script)
    }

    /// The answer shows what the device is about to do: it may be the last one that the visitor can get.
    fn joining(&self, asked: &Asked<'_>, visits: Vec<Visit>) -> Answer {
        let number = asked.welcome.attempt.as_ref().map_or(0, |attempt| attempt.number) + 1;
        let network = visits.iter().find_map(|visit| match visit {
            Visit::Network(given) => Some(given.ssid.clone()),
            _ => None,
        });
        let notice = network.is_none().then_some("The device has its credentials.");
        let attempt = network.map(|ssid| Attempt { number, ssid, result: Result::Trying });
        let attempt = attempt.or_else(|| asked.welcome.attempt.clone());
        let welcome = Welcome { attempt, ..asked.welcome.clone() };
        let view = View { welcome: &welcome, notice, ..View::plain(self, asked) };
        did(self.shown(&view, 200, asked.by_script), visits)
    }
}

const fn nothing() -> Response {
    Response { status: 204, headers: Vec::new(), body: Cow::Borrowed(b"") }
}

fn problem(text: &str, field: &'static str) -> Problem {
    Problem { text: html::capital(text), field }
}

/// What the form gives: an identity, a network, or both, the identity first.
fn given(form: &Form<'_>) -> std::result::Result<Vec<Visit>, Problem> {
    let credentials = [form.get("file"), form.get("credentials")].map(<[u8]>::trim_ascii);
    let credentials = credentials.into_iter().find(|text| !text.is_empty());
    let identity: Option<Identity> = credentials
        .map(identity::read)
        .transpose()
        .map_err(|unusable| problem(&unusable.to_string(), "credentials"))?;
    let (value, name) = (form.text("network"), form.text("name"));
    let listed = html::chosen(value);
    if identity.is_some() && listed.is_none() && name.is_empty() {
        return Ok(identity.map(Visit::Identity).into_iter().collect());
    }
    let typed = listed.is_none();
    let Ok(password) = std::str::from_utf8(form.get("password")) else {
        return Err(problem(&Mistyped::Letters.to_string(), "password"));
    };
    let network = visit::network(listed.as_deref().unwrap_or(name.as_bytes()), password, typed);
    let network = network.map_err(|mistake| match mistake {
        Mistyped::NoName | Mistyped::NameTooLong => problem(&mistake.to_string(), "name"),
        Mistyped::Password | Mistyped::Letters => problem(&mistake.to_string(), "password"),
    })?;
    Ok(identity.map(Visit::Identity).into_iter().chain([Visit::Network(network)]).collect())
}
