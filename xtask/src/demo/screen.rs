//! What a person sees: steps with their times, and a table that refreshes; line by line where there is no terminal.

use parking_lot::Mutex;
use std::{
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// How often a live screen is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// A step that takes longer than this says that it goes on, and what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two such lines where there is no terminal.
const REMINDER: Duration = Duration::from_secs(15);

/// Where a terminal does not say how big it is.
const SIZE: Size = Size { columns: 120, rows: 40 };

/// Room for text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    fn of_terminal() -> Self {
        let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) else { return SIZE };
        let or = |given: u16, otherwise: usize| if given == 0 { otherwise } else { usize::from(given) };
        Self { columns: or(size.ws_col, SIZE.columns), rows: or(size.ws_row, SIZE.rows) }
    }
}

/// The screen. A copy is the same screen.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    live: bool,
    state: Mutex<State>,
    painter: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    step: Option<Step>,
    /// The table as it is now.
    table: Vec<String>,
    /// Lines of the last frame, which the next one replaces.
    drawn: usize,
    closed: bool,
}

#[derive(Debug)]
struct Step {
    title: String,
    waits_for: String,
    since: Instant,
    /// When a plain screen last said that it goes on.
    reminded: Instant,
}

impl Screen {
    /// A live screen redraws itself; a plain one prints each change once.
    pub(crate) fn start(live: bool) -> Self {
        let inner = Arc::new(Inner { live, state: Mutex::default(), painter: Mutex::default() });
        let painted = Arc::clone(&inner);
        let task = tokio::spawn(async move {
            let mut frames = tokio::time::interval(FRAME);
            loop {
                frames.tick().await;
                painted.frame();
            }
        });
        *inner.painter.lock() = Some(task);
        Self { inner }
    }

    /// Begins a step. The one before is done.
    pub(crate) fn step(&self, title: impl Into<String>) {
        let now = Instant::now();
        self.finish_step();
        let title = title.into();
        if !self.inner.live {
            print(&format!("▸ {title}\n"));
        }
        self.inner.state.lock().step = Some(Step { title, waits_for: String::new(), since: now, reminded: now });
    }

    /// Says what the step waits for now.
    pub(crate) fn waits_for(&self, what: impl Into<String>) {
        if let Some(step) = &mut self.inner.state.lock().step {
            step.waits_for = what.into();
        }
    }

    /// How wide lines may be.
    pub(crate) fn columns() -> usize {
        Size::of_terminal().columns
    }

    /// Says something that stays.
    pub(crate) fn note(&self, text: &str) {
        let mut state = self.inner.state.lock();
        let erase = state.erase();
        let wrapped = text.lines().flat_map(|line| wrap(line, Self::columns().saturating_sub(2)));
        let indented: Vec<String> = wrapped.map(|line| format!("  {}", line.trim())).collect();
        print(&format!("{erase}{}", lines(&indented)));
    }

    /// Shows this table from now on; `changes` are the same news for a plain screen.
    pub(crate) fn table(&self, table: Vec<String>, changes: &[String]) {
        if self.inner.live {
            self.inner.state.lock().table = table;
        } else {
            for change in changes {
                print(&format!("    {change}\n"));
            }
        }
    }

    /// Draws the last frame for good.
    pub(crate) fn close(&self) {
        self.finish_step();
        if let Some(painter) = self.inner.painter.lock().take() {
            painter.abort();
        }
        let mut state = self.inner.state.lock();
        if !state.closed && self.inner.live {
            let frame = format!("{}{}", state.erase(), lines(&state.table));
            print(&frame);
        }
        state.closed = true;
    }

    fn finish_step(&self) {
        let mut state = self.inner.state.lock();
        let Some(step) = state.step.take() else { return };
        let took = step.since.elapsed();
        if self.inner.live {
            let erase = state.erase();
            print(&format!("{erase}\x1b[32m✔\x1b[0m {} {}\n", step.title, seconds(took)));
        } else if took >= PATIENCE {
            print(&format!("  done after {}\n", seconds(took)));
        }
    }
}

impl Inner {
    fn frame(&self) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        if self.live {
            let mut frame = Vec::new();
            if let Some(step) = &state.step {
                // A line that the terminal breaks cannot be erased.
                let line: String = format!("▸ {}{}", step.title, step.progress());
                frame.push(line.chars().take(Size::of_terminal().columns.saturating_sub(1)).collect());
            }
            frame.extend(state.table.iter().cloned());
            // What has scrolled away cannot be erased.
            frame.truncate(Size::of_terminal().rows.saturating_sub(1));
            let text = format!("{}{}", state.erase(), lines(&frame));
            state.drawn = frame.len();
            print(&text);
        } else if let Some(step) = &mut state.step
            && step.reminded.elapsed() >= REMINDER
        {
            step.reminded = Instant::now();
            print(&format!("  still at it{}\n", step.progress()));
        }
    }
}

impl State {
    /// Takes the last frame off the screen.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            drawn => format!("\x1b[{drawn}A\x1b[J"),
        }
    }
}

impl Step {
    fn progress(&self) -> String {
        let took = self.since.elapsed();
        let waits = if self.waits_for.is_empty() { String::new() } else { format!(", waiting for {}", self.waits_for) };
        if took < PATIENCE { String::new() } else { format!(" ({}{waits})", seconds(took)) }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Breaks a line where it would be too long, at spaces.
pub(crate) fn wrap(line: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let current = lines.last().map_or(0, |line| line.chars().count());
        if current > 0 && current + word.trim_end().chars().count() > columns {
            lines.push("    ".to_owned());
        }
        if let Some(last) = lines.last_mut() {
            last.push_str(word);
        }
    }
    lines
}

fn lines(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// A terminal that went away is no reason to stop.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let long = "word ".repeat(50);
        let lines = wrap(&long, 78);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.trim_end().chars().count() <= 78), "{lines:?}");
        assert_eq!(lines.iter().flat_map(|line| line.split_whitespace()).count(), 50);
    }
}
