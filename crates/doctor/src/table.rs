//! Tables for people. Pure.

use std::fmt::Write;

use crate::style::{Colour, Style};

/// What stands in a column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    /// Text in a colour.
    pub fn coloured(colour: Colour, text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            colour: Some(colour),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell { text, colour: None }
    }
}

/// Between two columns.
const GAP: usize = 2;
/// No column is cut to less: an address, also one of hardware, stays whole.
const NARROWEST: usize = 17;
/// What the last column gets before others are cut for it.
const LAST: usize = 24;

/// Columns as wide as they must be. Where a row does not fit, the last column is folded below itself, and then the
/// widest of the others are cut, which an `…` shows. Without rows there is no table.
pub fn table<const N: usize>(style: Style, head: [&str; N], rows: Vec<[Cell; N]>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let widths = widths(style, &head, &rows);
    let heading = head.map(|text| Cell::coloured(Colour::Heading, text));
    let mut text = String::new();
    for row in std::iter::once(heading).chain(rows) {
        let mut line = String::new();
        let mut column = 0;
        for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
            let shown = if place + 1 == N {
                style.fold(&cell.text, column)
            } else {
                format!("{:<width$}", cut(&cell.text, width))
            };
            let painted = cell.colour.map(|colour| {
                // What pads a cell is not part of it.
                let (words, rest) = shown.split_at(shown.trim_end().len());
                format!("{}{rest}", style.paint(colour, words))
            });
            line.push_str(painted.as_deref().unwrap_or(&shown));
            if place + 1 < N {
                line.push_str(&" ".repeat(GAP));
            }
            column += width + GAP;
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// How wide each column is.
fn widths<const N: usize>(style: Style, head: &[&str; N], rows: &[[Cell; N]]) -> [usize; N] {
    let widest = |place: usize| {
        let cells = rows.iter().map(|row| row[place].text.chars().count());
        cells
            .chain([head[place].chars().count()])
            .max()
            .unwrap_or_default()
    };
    let mut widths: [usize; N] = std::array::from_fn(widest);
    let Some(limit) = style.width else { return widths };
    let Some((last, others)) = widths.split_last_mut() else {
        return widths;
    };
    let needed = |others: &[usize]| others.iter().sum::<usize>() + GAP * others.len() + (*last).min(LAST);
    while needed(others) > limit {
        match others.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => break,
        }
    }
    widths
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[Cell; 3]> {
        let says = "the image cannot be pulled: look at the events of the pod";
        vec![
            [
                "dns".into(),
                "my-cluster-dns-5f7c9d6b8-abcde".into(),
                "leases 2".into(),
            ],
            ["proxy".into(), "no pod".into(), Cell::coloured(Colour::Bad, says)],
        ]
    }

    const HEAD: [&str; 3] = ["SERVER", "POD", "SAYS"];

    #[test]
    fn a_table_that_fits_has_a_line_a_row() {
        insta::assert_snapshot!(table(Style::default(), HEAD, rows()));
        assert_eq!(table::<3>(Style::default(), HEAD, Vec::new()), "");
    }

    #[test]
    fn a_narrow_table_folds_its_last_column_and_cuts_the_widest() {
        for width in [60, 80] {
            let style = Style {
                colours: false,
                width: Some(width),
            };
            let shown = table(style, HEAD, rows());
            let widest = shown.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width} columns:\n{shown}");
            insta::assert_snapshot!(format!("at_{width}_columns"), shown);
        }
    }

    #[test]
    fn colours_do_not_move_columns() {
        let style = Style {
            colours: true,
            width: None,
        };
        let shown = table(style, HEAD, rows());
        let plain = shown
            .replace("\x1b[1m", "")
            .replace("\x1b[31m", "")
            .replace("\x1b[0m", "");
        assert_eq!(plain, table(Style::default(), HEAD, rows()));
        assert!(shown.contains("\x1b[31mthe image"), "{shown:?}");
    }
}
