// The row that an address names, and on the command line.

import { router, to } from '../../app/router.svelte';

/** None for a key with a NULL in it: nobody can look for it. */
export function rowPath(pipeline: string, key: (string | null)[]): string | null {
  if (key.includes(null)) return null;
  const [first] = key;
  const text = key.length === 1 && first && !first.startsWith('[') ? first : JSON.stringify(key);
  return `${to('pipelines', pipeline, 'row')}?key=${encodeURIComponent(text)}`;
}

export function rowCommand(pipeline: string): string {
  const key = router.query.get('key') ?? '';
  return `vitrina row ${pipeline} ${/^[\w.:-]+$/.test(key) ? key : `'${key.replaceAll("'", `'\\''`)}'`}`;
}
