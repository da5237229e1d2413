//! Which hosts a request may reach. A name is checked against the grant's scope at each hop, and the address
//! that it resolves to is checked before it is connected to, so that no name server can lead elsewhere.

use crate::agent::host::CallError;
use crate::roster::scope::{must_be_named, Named, Scope};
use crate::sync::lock;
use std::sync::{Arc, Mutex};
use ureq::http::uri::Scheme;
use ureq::http::{Method, Uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The gate of one request.
pub(super) struct Gate<'a> {
    scope: Option<&'a Scope>,
    hop: Arc<Mutex<Hop>>,
}

/// What the resolver is to know of the hop that it resolves for, and what it found.
#[derive(Debug, Default)]
struct Hop {
    /// The host is named exactly: it may be anywhere.
    named: bool,
    /// Every address of this host must be named, and is not.
    refused: Option<String>,
}

/// Resolves, and lets through only what may be connected to.
#[derive(Debug)]
pub(super) struct Checked {
    inner: DefaultResolver,
    hop: Arc<Mutex<Hop>>,
}

impl<'a> Gate<'a> {
    pub(super) fn new(scope: Option<&'a Scope>) -> Self {
        Gate { scope, hop: Arc::default() }
    }

    pub(super) fn resolver(&self) -> Checked {
        Checked { inner: DefaultResolver::default(), hop: Arc::clone(&self.hop) }
    }

    /// Whether a hop may be made, as far as method and name tell.
    ///
    /// # Errors
    /// `forbidden`, naming what the scope does not have.
    pub(super) fn admit(&self, method: &Method, target: &Uri) -> Result<(), CallError> {
        let host = target.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let usual = if target.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = target.port_u16().unwrap_or(usual);
        let named = self.scope.map_or(Named::ByPattern, |scope| scope.names_host(host, port));
        let forbidden = |what: String| {
            let text = format!("http_request is granted, but not for {what}: its scope does not have it");
            Err(CallError::new("forbidden", text))
        };
        if named == Named::No {
            return forbidden(format!("{host}:{port}"));
        }
        if self.scope.is_some_and(|scope| !scope.has_method(method.as_str())) {
            return forbidden(format!("the method {method}"));
        }
        *lock(&self.hop) = Hop { named: named == Named::Exactly, refused: None };
        Ok(())
    }

    /// The error, or what the resolver refused.
    pub(super) fn explained(&self, error: CallError) -> CallError {
        match lock(&self.hop).refused.take() {
            None => error,
            Some(host) => {
                let text = format!(
                    "{host} leads to this machine or its link, and such a host must be named in the scope of \
                     http_request: {{\"hosts\": [{host:?}]}}"
                );
                CallError::new("forbidden", text)
            }
        }
    }
}

impl Resolver for Checked {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let mut hop = lock(&self.hop);
        if hop.named {
            return Ok(found);
        }
        let mut allowed = self.inner.empty();
        for address in found.iter().filter(|address| !must_be_named(address.ip())) {
            allowed.push(*address);
        }
        if allowed.is_empty() {
            hop.refused = Some(uri.authority().map(|authority| authority.to_string()).unwrap_or_default());
            return Err(ureq::Error::HostNotFound);
        }
        Ok(allowed)
    }
}
