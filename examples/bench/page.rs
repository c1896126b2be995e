//! The page of figures: a table, what fell short, and a drawing.

use std::fmt::Write as _;

/// How a figure relates to its goal.
#[derive(Clone, Copy, PartialEq)]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// No goal: it is there for comparison.
    None,
}

/// One measured figure.
pub struct Figure {
    /// What was measured, with the storage and the number of clients.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it should be.
    pub goal: Goal,
    /// What explains it: the ceiling of the same call, or the spread.
    pub note: String,
}

impl Figure {
    /// How far it is: 1 is the goal, more is better.
    fn share(&self) -> Option<f64> {
        match self.goal {
            Goal::AtLeast(goal) => Some(self.value / goal),
            Goal::AtMost(goal) => Some(goal / self.value.max(f64::MIN_POSITIVE)),
            Goal::None => None,
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            Goal::AtLeast(goal) => format!("at least {}", number(goal)),
            Goal::AtMost(goal) => format!("at most {}", number(goal)),
            Goal::None => String::new(),
        }
    }

    /// A row of the table.
    pub fn row(&self) -> String {
        let met = match self.share() {
            Some(share) if share >= 1.0 => "yes",
            Some(_) => "no",
            None => "",
        };
        let (measured, goal) = (self.measured(), self.goal());
        format!(
            "| {} | {measured} | {goal} | {met} | {} |",
            self.name, self.note
        )
    }

    /// The value with its unit.
    pub fn measured(&self) -> String {
        let measured = format!("{} {}", number(self.value), self.unit);
        measured.trim_end().to_owned()
    }
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        small if small >= 0.1 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// The head of the table.
pub const HEAD: &str = "| figure | measured | goal | met | beside it |\n|---|---|---|---|---|";

/// What is below its goal, worst first.
pub fn shortfalls(figures: &[Figure]) -> String {
    let mut short: Vec<(f64, &Figure)> = figures
        .iter()
        .filter_map(|figure| Some((figure.share()?, figure)))
        .filter(|(share, _)| *share < 1.0)
        .collect();
    short.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out = String::new();
    for (share, figure) in &short {
        let (measured, goal) = (figure.measured(), figure.goal());
        let percent = 100.0 * share;
        let _ = writeln!(
            out,
            "- {}: {measured}, {goal} ({percent:.0} % of the goal)",
            figure.name
        );
    }
    if out.is_empty() {
        out.push_str("Nothing fell short of its goal.\n");
    }
    out
}

/// The page as Markdown.
pub fn markdown(figures: &[Figure], how: &str) -> String {
    let rows: Vec<String> = figures.iter().map(Figure::row).collect();
    format!(
        "# Figures\n\n{how}\n\n![Each figure as a share of its goal](figures.svg)\n\n{HEAD}\n{}\n\n\
         ## What fell short\n\n{}",
        rows.join("\n"),
        shortfalls(figures)
    )
}

/// Each figure with a goal as a bar: the line is the goal, and the scale is logarithmic.
pub fn svg(figures: &[Figure]) -> String {
    const LEFT: f64 = 410.0;
    const WIDTH: f64 = 400.0;
    const ROW: f64 = 20.0;
    // Shares from a tenth of the goal to ten times it.
    let place = |share: f64| LEFT + WIDTH * (share.clamp(0.1, 10.0).log10() + 1.0) / 2.0;
    let shown: Vec<(f64, &Figure)> = figures
        .iter()
        .filter_map(|figure| Some((figure.share()?, figure)))
        .collect();
    let height = ROW * (shown.len() as f64 + 3.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"900\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (share, label) in [(0.1, "a tenth"), (1.0, "the goal"), (10.0, "ten times")] {
        let x = place(share);
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"24\" x2=\"{x}\" y2=\"{height}\" stroke=\"#999\"/>\
             <text x=\"{x}\" y=\"16\" text-anchor=\"middle\" fill=\"#555\">{label}</text>"
        );
    }
    for (at, (share, figure)) in shown.iter().enumerate() {
        let y = ROW * (at as f64 + 1.7);
        let end = place(*share);
        let (from, to) = (end.min(place(1.0)), end.max(place(1.0)));
        let color = if *share >= 1.0 { "#2a7" } else { "#c43" };
        let name = figure.name.replace('&', "&amp;").replace('<', "&lt;");
        let (text, base) = (y + 12.0, LEFT - 10.0);
        let width = (to - from).max(1.0);
        let _ = writeln!(
            out,
            "<text x=\"{base}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"14\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{text}\" fill=\"#333\">{}</text>",
            to + 6.0,
            figure.measured()
        );
    }
    out.push_str("</svg>\n");
    out
}
