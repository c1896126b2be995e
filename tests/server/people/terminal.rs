//! Screens in a terminal: colours where they are wanted, and lines that fit.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::*;

/// What begins a sequence by which a terminal is told a colour.
const ESCAPE: char = '\x1b';

/// What a command writes to a terminal of so many columns.
fn in_terminal(command: &mut Command, columns: u16) -> String {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, vec![]).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let screen: OwnedFd = open(name, flags, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(screen.as_fd(), size).unwrap();
    let mut child = command.stdout(screen).spawn().unwrap();
    // The end is read once nobody has the screen any more, this process neither.
    command.stdout(Stdio::null());
    let mut shown = vec![];
    let mut reader = File::from(terminal);
    let mut buffer = [0; 4096];
    // At the end a read fails, or finds nothing.
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..length]);
    }
    assert!(child.wait().unwrap().success(), "{}", text(&shown));
    text(&shown)
}

fn thread_of(client: &Client, message: &str) {
    client.post("/threads", &json!({"thread_id": THREAD}));
    let message = json!({"id": "m1", "role": "user", "content": message});
    let path = format!("/threads/{THREAD}/messages");
    let posted = client.post(&path, &json!({"messages": [message]}));
    assert_eq!(posted.status, 201, "{}", posted.text());
}

#[test]
fn only_a_terminal_whose_person_wants_colours_gets_them() {
    let (server, client) = bundled();
    thread_of(&client, "Shall we go left?");
    let state = || {
        let mut command = at(&server, &["state", THREAD]);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command
    };
    let coloured = in_terminal(&mut state(), 80);
    assert!(coloured.contains(ESCAPE), "{coloured:?}");
    assert!(coloured.contains("Shall we go left?"), "{coloured:?}");
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = in_terminal(state().env(name, value), 80);
        assert!(!plain.contains(ESCAPE), "{name}={value}: {plain:?}");
        assert!(plain.contains("Shall we go left?"), "{plain:?}");
    }
    // As the convention says: a variable that is empty says nothing.
    assert!(in_terminal(state().env("NO_COLOR", ""), 80).contains(ESCAPE));
    assert!(!shown(&mut state()).contains(ESCAPE), "no terminal");
}

#[test]
fn lines_fit_a_narrow_terminal_also_where_characters_take_two_columns() {
    let (server, client) = bundled();
    thread_of(&client, "漢字かな交じり文で長く書く");
    let tree = || {
        let mut command = at(&server, &["tree", THREAD]);
        command.env("NO_COLOR", "1");
        command
    };
    let whole = in_terminal(&mut tree(), 80);
    assert_eq!(whole, "#1 user: 漢字かな交じり文で長く書く  [main*]\r\n");
    // Nine columns are taken before the message, and one by the mark of what is missing.
    let narrow = in_terminal(&mut tree(), 20);
    assert_eq!(narrow, "#1 user: 漢字かな交…\r\n");
    // Half of a character fits nowhere.
    let odd = in_terminal(&mut tree(), 19);
    assert_eq!(odd, "#1 user: 漢字かな…\r\n");
}
