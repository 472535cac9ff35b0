// How the SQL editor looks and what it can do. Tab is left alone: who works by keyboard leaves the editor with it.

import { autocompletion, closeBrackets, completionKeymap, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { PostgreSQL, schemaCompletionSource, sql, type SQLNamespace } from '@codemirror/lang-sql';
import { bracketMatching, HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, lintKeymap, type Diagnostic } from '@codemirror/lint';
import { unifiedMergeView } from '@codemirror/merge';
import { EditorState, type Extension } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { Check, SourceSchema } from '../api/calls';

const look = EditorView.theme({
  '&': { color: 'var(--text)', fontSize: '13px', maxHeight: '60vh' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', minHeight: '220px' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--raised)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'light-dark(#cfdcfb, #33446f)',
  },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': {
    backgroundColor: 'var(--accent-ground)',
    color: 'var(--on-accent)',
  },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
  '.cm-diagnostic-warning': { borderLeftColor: 'var(--warn)' },
  '.cm-deletedChunk': { backgroundColor: 'var(--bad-tint)' },
  '.cm-changedLine': { backgroundColor: 'var(--good-tint)' },
  '.cm-changedText': { background: 'none', textDecoration: 'underline' },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: 'light-dark(#7a2fa0, #d3a0f0)', fontWeight: '600' },
  { tag: [tags.string, tags.special(tags.string)], color: 'light-dark(#176c31, #8fdcab)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'light-dark(#8a4b00, #f0b979)' },
  { tag: tags.typeName, color: 'light-dark(#0b5f7d, #7fcfe8)' },
  { tag: [tags.lineComment, tags.blockComment], color: 'var(--muted)', fontStyle: 'italic' },
]);

export function setup(label: string, readonly: boolean): Extension {
  return [
    look,
    syntaxHighlighting(colours),
    sql({ dialect: PostgreSQL, upperCaseKeywords: false }),
    lineNumbers(),
    lintGutter(),
    history(),
    drawSelection(),
    highlightActiveLine(),
    bracketMatching(),
    closeBrackets(),
    autocompletion(),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ 'aria-label': label }),
    EditorState.readOnly.of(readonly),
    EditorView.editable.of(!readonly),
    keymap.of([...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap]),
  ];
}

/** Columns that the query is known to have. */
export function columnCompletion(columns: string[]): Extension {
  const options = columns.map((label) => ({ label, type: 'property' }));
  const complete = (context: CompletionContext) => {
    const word = context.matchBefore(/\w+/);
    return word ? { from: word.from, options } : null;
  };
  return PostgreSQL.language.data.of({ autocomplete: complete });
}

/** Tables of the source behind their schema, columns behind their table or its alias. */
export function schemaCompletion({ tables }: SourceSchema): Extension {
  const schema: Record<string, Record<string, SQLNamespace>> = {};
  for (const table of tables) {
    const columns = table.columns.map(({ name, type }) => ({ label: name, type: 'property', detail: type }));
    (schema[table.schema] ??= {})[table.name] = columns;
  }
  return PostgreSQL.language.data.of({ autocomplete: schemaCompletionSource({ dialect: PostgreSQL, schema }) });
}

export function comparison(saved: string): Extension {
  return unifiedMergeView({ original: saved, mergeControls: false });
}

/** Findings where they belong: at their place in the text, or at its beginning. */
export function diagnostics(state: EditorState, checks: Check[]): Diagnostic[] {
  return checks
    .filter((check) => check.severity !== 'ok')
    .map((check) => {
      const line = state.doc.line(Math.min(Math.max(check.line ?? 1, 1), state.doc.lines));
      const from = Math.min(line.from + Math.max((check.column ?? 1) - 1, 0), line.to);
      const word = state.wordAt(from);
      const to = check.line ? Math.max(word?.to ?? from, Math.min(from + 1, line.to)) : line.to;
      const message = check.hint ? `${check.detail}\n${check.hint}` : check.detail;
      return { from, to, severity: check.severity === 'error' ? 'error' : 'warning', message } satisfies Diagnostic;
    });
}
