// The row that the address names, on the command line.

import { router } from '../../app/router.svelte';

export function rowCommand(pipeline: string): string {
  const key = router.query.get('key') ?? '';
  return `vitrina row ${pipeline} ${/^[\w.:-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`}`;
}
