// What the address says about comparisons, and the same on the command line.

import { router } from '../../app/router.svelte';
import { session } from '../../app/session.svelte';
import type { Key } from '../../i18n/index.svelte';
import type { DifferenceKind, LastReconcile, Level, Reconcile } from '../../api/calls';

export const levels: Level[] = ['count', 'hash', 'rows'];
export const kinds: DifferenceKind[] = ['missing', 'extra', 'different'];
/** So many differences are kept where nothing else is said, and so many at most. */
export const KEPT = 10_000;
export const MOST_KEPT = 100_000;

export function chosenLevel(): Level {
  return levels.find((level) => level === router.query.get('level')) ?? 'hash';
}

export function chosenLimit(): number {
  const limit = Number(router.query.get('limit') ?? KEPT);
  return Number.isInteger(limit) && limit >= 0 && limit <= MOST_KEPT ? limit : KEPT;
}

export function chosenKind(): DifferenceKind | undefined {
  return kinds.find((kind) => kind === router.query.get('kind'));
}

export function compareCommand(pipeline: string): string {
  if (!session.may('operator')) return `vitrina reconciles ${pipeline}`;
  const level = chosenLevel();
  const limit = level === 'rows' && chosenLimit() !== KEPT ? ` --limit ${chosenLimit()}` : '';
  return `vitrina reconcile ${pipeline}${level === 'hash' ? '' : ` --level ${level}`}${limit}`;
}

export function differencesCommand(_: string, id: string): string {
  const kind = chosenKind();
  return `vitrina differences ${id}${kind ? ` --kind ${kind}` : ''}`;
}

export function isOpen(reconcile: Reconcile): boolean {
  return reconcile.status === 'REQUESTED' || reconcile.status === 'RUNNING';
}

/** Rows that are missing, extra or different. */
export function found(reconcile: Reconcile): number {
  const { missing = 0, extra = 0, different = 0 } = reconcile.figures ?? {};
  return missing + extra + different;
}

/** Rows that differ by kind, then those that need no repair. */
export function counts(
  rows: Pick<LastReconcile, DifferenceKind | 'in_flight' | 'rejected'>,
): { word: Key; rows: number; differ: boolean }[] {
  return [
    ...kinds.map((kind) => ({ word: `difference.${kind}` as const, rows: rows[kind], differ: true })),
    { word: 'reconcile.in_flight', rows: rows.in_flight, differ: false },
    { word: 'figure.rejected', rows: rows.rejected, differ: false },
  ];
}

/** How many of them were kept, to be seen and repaired. */
export function kept(reconcile: Reconcile): number {
  return reconcile.level === 'rows' ? Math.min(found(reconcile), reconcile.limit) : 0;
}
