//! Goals, the table on standard output and the JSON file.

use std::path::Path;

use serde_json::{Value, json};

use super::measure::{Sample, Sides};

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
}

/// Thresholds for a ratio.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    pub better: Better,
    /// A miss fails the run.
    pub floor: f64,
    /// A miss is only reported.
    pub moonshot: f64,
}

impl Goal {
    pub const fn at_least(floor: f64, moonshot: f64) -> Self {
        Self { better: Better::Higher, floor, moonshot }
    }

    pub const fn at_most(floor: f64, moonshot: f64) -> Self {
        Self { better: Better::Lower, floor, moonshot }
    }

    fn reaches(&self, value: f64, mark: f64) -> bool {
        match self.better {
            Better::Higher => value >= mark,
            Better::Lower => value <= mark,
        }
    }
}

/// One row of the table.
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub sides: Sides,
    /// `None` for rows that are shown for information only.
    pub goal: Option<Goal>,
}

impl Row {
    pub fn new(name: impl Into<String>, unit: &'static str, sides: Sides, goal: Goal) -> Self {
        Self { name: name.into(), unit, sides, goal: Some(goal) }
    }

    /// Creates a row without a goal.
    pub fn information(name: impl Into<String>, unit: &'static str, sides: Sides) -> Self {
        Self { name: name.into(), unit, sides, goal: None }
    }

    /// Creates a row for a quantity whose goal is a number, not a ratio.
    pub fn absolute(name: impl Into<String>, unit: &'static str, ours: Sample, goal: Goal) -> Self {
        Self::new(name, unit, Sides { ours, baseline: Sample::exact(1.0) }, goal)
    }

    fn ratio(&self) -> f64 {
        self.sides.ours.median() / self.sides.baseline.median()
    }

    fn misses_floor(&self) -> bool {
        self.goal.is_some_and(|goal| !goal.reaches(self.ratio(), goal.floor))
    }

    fn verdict(&self) -> &'static str {
        match self.goal {
            None => "",
            Some(_) if self.misses_floor() => "FLOOR MISSED",
            Some(goal) if goal.reaches(self.ratio(), goal.moonshot) => "moonshot",
            Some(_) => "floor",
        }
    }

    fn cells(&self) -> [String; 7] {
        let ratios = self.sides.ratios();
        let (lowest, highest) = ratios.range();
        let mark =
            |mark: fn(&Goal) -> f64| self.goal.as_ref().map_or(String::new(), |g| short(mark(g)));
        [
            self.name.clone(),
            side(&self.sides.ours, self.unit),
            side(&self.sides.baseline, self.unit),
            match ratios.values().len() {
                1 => short(self.ratio()),
                _ => format!("{} ({}–{})", short(self.ratio()), short(lowest), short(highest)),
            },
            mark(|goal| goal.floor),
            mark(|goal| goal.moonshot),
            self.verdict().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let sample =
            |sample: &Sample| json!({"median": sample.median(), "values": sample.values()});
        json!({
            "name": self.name,
            "unit": self.unit,
            "ours": sample(&self.sides.ours),
            "baseline": sample(&self.sides.baseline),
            "ratio": self.ratio(),
            "floor": self.goal.map(|goal| goal.floor),
            "moonshot": self.goal.map(|goal| goal.moonshot),
            "lower_is_better": self.goal.map(|goal| goal.better == Better::Lower),
            "pass": self.goal.map(|_| !self.misses_floor()),
        })
    }
}

/// All rows and notes of a run.
#[derive(Default)]
pub struct Report {
    pub rows: Vec<Row>,
    pub notes: Vec<String>,
}

impl Report {
    pub fn add(&mut self, row: Row) {
        eprintln!("  {}", row.cells().join(" | "));
        self.rows.push(row);
    }

    /// Adds a sentence about the load or the method, which is printed under the table.
    pub fn note(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        eprintln!("  {sentence}");
        self.notes.push(sentence);
    }

    /// Prints the table and the notes.
    pub fn print(&self) {
        const HEAD: [&str; 7] = ["name", "ours", "baseline", "ratio", "floor", "moonshot", "pass"];
        let mut lines = vec![HEAD.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|l| l[column].chars().count()).max();
        let widths: Vec<usize> = (0..HEAD.len()).map(|c| width(c).unwrap_or(0)).collect();
        for line in &lines {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("{}", cells.join(" | ").trim_end());
        }
        println!(
            "\nMedian of the repetitions (lowest–highest). Ratio: ours / baseline, of the medians."
        );
        self.notes.iter().for_each(|note| println!("- {note}"));
    }

    /// Writes rows and notes as JSON.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        std::fs::write(path, format!("{:#}\n", json!({"rows": rows, "notes": self.notes})))
    }

    /// Returns the names of the rows that miss their floor.
    pub fn missed(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| row.misses_floor()).map(|row| row.name.as_str()).collect()
    }
}

fn side(sample: &Sample, unit: &str) -> String {
    let (lowest, highest) = sample.range();
    match sample.values().len() {
        1 => format!("{} {unit}", short(sample.median())),
        _ => format!("{} {unit} ({}–{})", short(sample.median()), short(lowest), short(highest)),
    }
}

/// Formats a value with about three significant digits; `k` stands for thousands and `M` for
/// millions.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 1e4 => format!("{:.1}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
