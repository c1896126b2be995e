//! What commands write for people: lines that fit the terminal, colours where they are wanted, and
//! nothing from a server that a terminal would take for a command.

use std::io::{self, IsTerminal, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Where a command writes.
pub struct Screen {
    out: io::Stdout,
    /// Columns of a terminal; what goes elsewhere is written whole.
    width: Option<usize>,
    has_colours: bool,
}

impl Screen {
    /// The standard output.
    pub fn stdout() -> Self {
        let out = io::stdout();
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let is_terminal = out.is_terminal();
        let columns = variable("COLUMNS").and_then(|columns| columns.parse().ok());
        Self {
            width: columns.or_else(|| is_terminal.then(terminal_width).flatten()),
            has_colours: has_colours(is_terminal, variable("NO_COLOR"), variable("TERM")),
            out,
        }
    }

    /// Writes a line, cut where the terminal ends.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        let text = clean(text);
        let text = match self.width {
            Some(width) => clip(&text, width),
            None => text,
        };
        writeln!(self.out, "{text}")
    }

    /// Writes a line of lesser weight.
    pub fn faint_line(&mut self, text: &str) -> io::Result<()> {
        if !self.has_colours {
            return self.line(text);
        }
        write!(self.out, "\x1b[2m")?;
        self.line(text)?;
        write!(self.out, "\x1b[0m")
    }

    /// Writes a value for machines, indented.
    pub fn json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        writeln!(self.out, "{value:#}")
    }

    /// Writes a value for machines on a line of its own, at once.
    pub fn json_line(&mut self, value: &serde_json::Value) -> io::Result<()> {
        writeln!(self.out, "{value}")?;
        self.out.flush()
    }

    /// Writes a text at once, as it is apart from what a terminal would take for a command.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        write!(self.out, "{}", clean(text))?;
        self.out.flush()
    }
}

/// A terminal has colours, unless the person or the terminal wants none.
fn has_colours(is_terminal: bool, no_color: Option<String>, term: Option<String>) -> bool {
    is_terminal && no_color.is_none() && term.is_none_or(|term| term != "dumb")
}

/// A text without control characters, but for line ends and tabs.
fn clean(text: &str) -> String {
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().filter(is_shown).collect()
}

/// Each line of a text, cut to so many columns. Most characters take one, those of Chinese, Japanese and
/// Korean two, marks on others none.
fn clip(text: &str, width: usize) -> String {
    let mut clipped = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            clipped.push('\n');
        }
        if line.width() <= width {
            clipped.push_str(line);
            continue;
        }
        let mut left = width.saturating_sub(1);
        for shown in line.chars() {
            let columns = shown.width().unwrap_or(0);
            if columns > left {
                break;
            }
            left -= columns;
            clipped.push(shown);
        }
        clipped.push('…');
    }
    clipped
}

#[cfg(unix)]
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(not(unix))]
fn terminal_width() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_terminals_whose_people_want_colours_get_them() {
        let text = |text: &str| Some(text.to_owned());
        assert!(has_colours(true, None, None) && has_colours(true, None, text("xterm")));
        assert!(!has_colours(true, text("1"), None) && !has_colours(false, None, None));
        assert!(!has_colours(true, None, text("dumb")));
    }

    #[test]
    fn lines_are_cut_to_the_width_and_control_characters_removed() {
        assert_eq!(clip("abcdef\nab", 4), "abc…\nab");
        assert_eq!(clip("abcd", 4), "abcd");
        assert_eq!(clip("ab", 0), "…");
        assert_eq!(clip("漢字かな", 8), "漢字かな");
        assert_eq!(clip("漢字かな", 7), "漢字か…");
        assert_eq!(clip("漢字かな", 6), "漢字…");
        assert_eq!(clip("e\u{301}e\u{301}ee", 3), "e\u{301}e\u{301}…");
        assert_eq!(clean("a\x1b[31mb\u{7}\u{9b}c\n\td"), "a[31mbc\n\td");
    }
}
