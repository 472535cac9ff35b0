//! Tables for people: whole in a file or a pipe, and as wide as the terminal on one.

use comfy_table::{ContentArrangement, Table, presets};

use super::width;

/// What a column that gives way keeps at least.
const LEAST: usize = 8;

/// Lines that are too long for a terminal are cut.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    yielding(header, rows, &[])
}

/// Where a terminal is too narrow, cells of these columns are cut, those of the first before those of the next.
pub(crate) fn yielding<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    give_way: &[&str],
) -> String {
    let header = header.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.to_vec()).collect();
    match width() {
        Some(width) => {
            let rows = narrowed(&header, rows, give_way, width);
            cut(&whole(header, rows), width)
        }
        None => whole(header, rows),
    }
}

/// A table whose columns are known only when it is shown.
pub(crate) fn wide_table(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    fitting(&whole(header, rows))
}

/// Cuts every line where a terminal would break it; a file or a pipe gets it whole.
pub(crate) fn fitting(text: &str) -> String {
    width().map_or_else(|| text.to_owned(), |width| cut(text, width))
}

fn whole(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn narrowed(header: &[String], rows: Vec<Vec<String>>, give_way: &[&str], width: usize) -> Vec<Vec<String>> {
    let of_column = |place: usize| rows.iter().map(move |row| length(&row[place]));
    let mut widths: Vec<usize> = (header.iter().enumerate())
        .map(|(place, name)| of_column(place).chain([length(name)]).max().unwrap_or_default())
        .collect();
    let needed = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
    let mut excess = needed.saturating_sub(width);
    for name in give_way {
        let Some(place) = header.iter().position(|known| known == name) else { continue };
        let given = excess.min(widths[place].saturating_sub(LEAST.max(length(name))));
        widths[place] -= given;
        excess -= given;
    }
    let cut_row = |row: Vec<String>| row.iter().zip(&widths).map(|(cell, width)| cut(cell, *width)).collect();
    rows.into_iter().map(cut_row).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

pub(super) fn cut(text: &str, width: usize) -> String {
    let cut = |line: &str| match length(line) <= width {
        true => line.to_owned(),
        false => format!("{}…", line.chars().take(width.saturating_sub(1)).collect::<String>()),
    };
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_line_is_cut_where_it_would_be_broken() {
        assert_eq!(cut("id  message\n1   фильм", 9), "id  mess…\n1   фильм");
    }

    #[test]
    fn a_table_has_no_frame_and_no_trailing_blanks() {
        let shown = whole(texts(&["name", "status"]), [texts(&["film_dim", "IDLE"])]);
        assert_eq!(shown, "name      status\nfilm_dim  IDLE");
    }

    #[test]
    fn the_least_important_columns_give_way_and_the_others_stay_whole() {
        let header = texts(&["pipeline", "target", "last run"]);
        let row = texts(&["film_dim_full", "analytics.film_dim", "SUCCESS 2024-05-01"]);
        let narrow = |width| narrowed(&header, vec![row.clone()], &["last run", "target"], width).remove(0);
        assert_eq!(narrow(80), row);
        assert_eq!(narrow(48), texts(&["film_dim_full", "analytics.film_dim", "SUCCESS 2024…"]));
        assert_eq!(narrow(40), texts(&["film_dim_full", "analytics.film…", "SUCCESS…"]));
    }
}
