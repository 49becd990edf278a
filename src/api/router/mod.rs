//! Finds the route for a path and method. Does not depend on parameters.

mod nearest;

use std::borrow::Cow;
use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use warp::http::Method;

use super::ApiError;
use super::call::{PathValues, in_braces};
use super::route::Route;

/// Order of methods in the `Allow` header; other methods follow.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// End of a template that matches every path below a prefix that no other template matches.
const REST: &str = "/{*rest}";

/// A template with its routes.
pub(super) struct Resource {
    template: &'static str,
    /// One route per method; never empty.
    routes: Vec<&'static Route>,
    /// Value of the `Allow` header.
    pub allow: String,
}

impl Resource {
    fn route(&self, method: &Method) -> Option<&'static Route> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.routes.iter().copied().find(|route| method == route.method)
    }
}

/// All routes of the service.
pub(super) struct Router {
    resources: Vec<Resource>,
    /// Indexes of resources by templates without braces. They take precedence, and a lookup does
    /// not allocate.
    literal: HashMap<&'static str, usize>,
    /// Indexes of resources by templates with braces.
    braced: matchit::Router<usize>,
    /// Indexes of resources whose template ends with [`REST`], by the prefix before it. They match
    /// every path below the prefix that no other resource matches.
    rests: Vec<(&'static str, usize)>,
}

/// Result of looking up a request's path and method.
#[derive(Clone, Copy)]
pub(super) enum Match<'a> {
    /// The handler of this route runs.
    Handle(&'static Route, PathValues<'a>),
    /// The response lists the methods of the resource.
    Options(&'a Resource),
    /// The resource exists, but not with this method.
    WrongMethod(&'a Resource),
    /// No such resource.
    Unknown,
}

impl Match<'_> {
    /// Returns the matched route, or the first route of the resource when the method has none;
    /// `None` for an unknown path.
    pub(super) fn route(&self) -> Option<&'static Route> {
        match self {
            Self::Handle(route, _) => Some(route),
            Self::Options(resource) | Self::WrongMethod(resource) => {
                resource.routes.first().copied()
            }
            Self::Unknown => None,
        }
    }
}

impl Router {
    /// Builds the router from these tables.
    ///
    /// # Errors
    /// [`ApiError::Start`] when two routes match the same requests, or a template is invalid.
    pub(super) fn new(tables: &[&'static [Route]]) -> Result<Self, ApiError> {
        let mut router = Self {
            resources: Vec::new(),
            literal: HashMap::new(),
            braced: matchit::Router::new(),
            rests: Vec::new(),
        };
        for route in tables.iter().copied().flatten() {
            let same = |resource: &Resource| resource.template == route.template;
            let at = match router.resources.iter().position(same) {
                Some(at) => at,
                None => router.add(route.template)?,
            };
            let resource = &mut router.resources[at];
            if resource.routes.iter().any(|other| other.method == route.method) {
                return Err(wrong(route.template, "has a method twice"));
            }
            resource.routes.push(route);
        }
        for resource in &mut router.resources {
            resource.allow = allow(&resource.routes);
        }
        Ok(router)
    }

    fn add(&mut self, template: &'static str) -> Result<usize, ApiError> {
        let (spelled, is_rest) = match template.strip_suffix(REST) {
            Some(before) => (before, true),
            None => (template, false),
        };
        let is_whole =
            |segment: &str| !in_braces(segment).unwrap_or(segment).contains(['{', '}', '*']);
        if !spelled.split('/').all(is_whole) || is_rest && spelled.contains('{') {
            return Err(wrong(template, "has braces that are not around a name"));
        }
        let at = self.resources.len();
        if is_rest {
            self.rests.push((spelled, at));
        } else if template.contains('{') {
            self.braced
                .insert(template, at)
                .map_err(|error| wrong(template, &error.to_string()))?;
        } else {
            self.literal.insert(template, at);
        }
        self.resources.push(Resource { template, routes: Vec::new(), allow: String::new() });
        Ok(at)
    }

    /// Finds the route for a path and method.
    pub(super) fn find<'a>(&'a self, method: &Method, path: &'a str) -> Match<'a> {
        // A trailing slash names the same resource, except in the path `/` itself.
        let path = path.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(path);
        let found = self.resource(path).or_else(|| {
            // `%65vents` is `events` (RFC 3986, section 6.2.2.2).
            let decoded = path.contains('%').then(|| decoded(path));
            let of_decoded = decoded.as_deref().and_then(|path| self.resource(path));
            of_decoded.or_else(|| self.rest(decoded.as_deref().unwrap_or(path)))
        });
        let Some(resource) = found else { return Match::Unknown };
        match resource.route(method) {
            Some(route) => Match::Handle(route, PathValues { template: route.template, path }),
            None if *method == Method::OPTIONS => Match::Options(resource),
            None => Match::WrongMethod(resource),
        }
    }

    /// Returns the resource that matches every path below a prefix of this one.
    fn rest(&self, path: &str) -> Option<&Resource> {
        let is_under =
            |before: &str| path.strip_prefix(before).is_some_and(|it| it.starts_with('/'));
        let (_, at) = self.rests.iter().find(|(before, _)| is_under(before))?;
        self.resources.get(*at)
    }

    fn resource(&self, path: &str) -> Option<&Resource> {
        let literal = self.literal.get(path).copied();
        let at = literal.or_else(|| Some(*self.braced.at(path).ok()?.value))?;
        self.resources.get(at)
    }
}

impl Router {
    /// Returns the templates that may be meant by a path that has no resource.
    pub(super) fn nearest(&self, path: &str) -> Vec<&'static str> {
        nearest::of(self.resources.iter().map(|resource| resource.template), path)
    }
}

/// Decodes every segment of a path, except those that contain a slash once decoded.
fn decoded(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        if decoded.contains('/') { Cow::Borrowed(segment) } else { decoded }
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Value of the `Allow` header for a resource with these routes.
fn allow(routes: &[&'static Route]) -> String {
    let mut methods: Vec<_> = routes.iter().map(|route| route.method).collect();
    methods.sort_by_key(|method| METHODS.iter().position(|it| it == method).unwrap_or(usize::MAX));
    let spelled = methods.into_iter().flat_map(|method| match method {
        "GET" => vec!["GET", "HEAD"],
        other => vec![other],
    });
    spelled.chain(["OPTIONS"]).collect::<Vec<_>>().join(", ")
}

fn wrong(template: &str, problem: &str) -> ApiError {
    ApiError::Start(format!("its route '{template}' {problem}"))
}

#[cfg(test)]
mod tests;
