//! How a program is named on the command line: by its id, or by the name of its project.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::Failure;
use super::remote::Remote;

/// An id of a program, of digits only, or the name of its project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramName(String);

impl fmt::Display for ProgramName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ProgramName {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl ProgramName {
    /// Returns the id of the program. The service is asked for that of a name.
    pub fn id(&self, remote: &Remote) -> Result<u32, Failure> {
        let Self(name) = self;
        if is_number(name) {
            let out_of_range =
                |_| Failure::usage(format!("there is no program with the id {name}"));
            return name.parse().map_err(out_of_range);
        }
        id_in(&remote.get("retroshade/list")?.json()?, name)
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Finds a project in the answer of `retroshade/list`. Names differ in more than case.
pub fn find<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    let is_named = |it: &&Value| {
        it["project_name"].as_str().is_some_and(|project| project.eq_ignore_ascii_case(name))
    };
    list.as_array()?.iter().find(is_named)
}

/// Returns the id of a project in the answer of `retroshade/list`.
fn id_in(list: &Value, name: &str) -> Result<u32, Failure> {
    let id = find(list, name).and_then(|it| it["id"].as_u64());
    if let Some(id) = id.and_then(|id| u32::try_from(id).ok()) {
        return Ok(id);
    }
    let projects = list.as_array().into_iter().flatten();
    let names: Vec<&str> = projects.filter_map(|it| it["project_name"].as_str()).take(10).collect();
    let mend = match names.as_slice() {
        [] => "deploy one with `orrery deploy`".to_owned(),
        names => format!("yours are {}; `orrery list` shows them", names.join(", ")),
    };
    Err(Failure::failed(format!("you have no project '{name}': {mend}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_project_is_found_by_its_name_in_any_case() {
        let list = json!([
            { "id": 7, "project_name": "market" },
            { "id": 12, "project_name": "a-7" },
        ]);
        let id = |name| id_in(&list, name).map_err(|failure| failure.to_string());
        assert_eq!(id("market"), Ok(7));
        assert_eq!(id("Market"), Ok(7));
        assert_eq!(id("a-7"), Ok(12));
        let refused = id("markt").unwrap_err();
        assert!(refused.contains("no project 'markt'") && refused.contains("market, a-7"));
        assert!(id_in(&json!([]), "x").unwrap_err().to_string().contains("orrery deploy"));
    }

    #[test]
    fn only_digits_are_an_id() {
        for (name, expected) in
            [("7", true), ("007", true), ("", false), ("a7", false), ("-1", false)]
        {
            assert_eq!(is_number(name), expected, "{name}");
        }
    }
}
