// The limits that the UI promises, measured where they are felt: in the browser, with 500 pipelines.

import { expect, test } from './stand';

const PIPELINES = 500;
/** So often at least, and so often at most where other programs keep the machine busy. */
const ROUNDS = [3, 10] as const;
const FIRST_PAINT = 500;
const INTERACTION = 100;
const FIRST_SCRIPT = 60 * 1024;

test('500 pipelines are painted at once and answer to every key', async ({ page, stand, as }) => {
  await stand.createPipeline('film_0', { freshness_limit_seconds: 3600, schedule_interval: '1h', tags: ['films'] });
  await stand.runToEnd('film_0');
  // Copies with their runs, because 500 real ones would take longer than the rest of the tests.
  await stand.sql(
    `with copies as (
       insert into etl.etl_pipelines
       select (jsonb_populate_record(p, jsonb_build_object('id', gen_random_uuid(), 'name', 'film_' || n))).*
         from etl.etl_pipelines p, generate_series(1, $1::int) n returning id)
     insert into etl.etl_runs
     select (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(), 'pipeline_id', copies.id))).*
       from etl.etl_runs r, copies`,
    [PIPELINES - 1],
  );

  const scripts = new Map<string, number>();
  page.on('response', (response) => {
    if (response.url().endsWith('.js')) scripts.set(response.url(), Number(response.headers()['content-length']));
  });
  await as('operator');
  const paints: number[] = [];
  while (isNoisy([paints], FIRST_PAINT)) {
    await page.goto('about:blank');
    await page.goto('/ui/');
    await expect(page.getByRole('button', { name: `All ${PIPELINES}` })).toBeVisible();
    await page.waitForFunction(() => performance.getEntriesByName('first-list').length > 0);
    paints.push(await page.evaluate(() => performance.getEntriesByName('first-list')[0]!.startTime));
  }
  const script = [...scripts.values()].reduce((sum, bytes) => sum + bytes, 0);

  // The best of several rounds is what the page itself costs: other programs only ever add to it.
  const search = page.getByRole('searchbox');
  const took: Record<string, number[]> = {};
  const act = async (name: string, action: () => Promise<unknown>) => {
    await page.evaluate(watchFrames);
    await action();
    (took[name] ??= []).push(await page.evaluate(() => (window as any).longestInteraction()));
  };
  while (isNoisy(Object.values(took), INTERACTION)) {
    await act('type a letter', () => search.press('7'));
    await act('clear the search', () => search.press('Backspace'));
    await act('select all', () => page.getByLabel('Select all').click());
    await act('sort', () => page.getByRole('button', { name: 'Last run' }).click());
    await act('filter', () => page.getByRole('button', { name: /^Idle/ }).click());
  }

  // The last one is there for whoever scrolls.
  for (let rows = 0; rows < PIPELINES; rows = await page.locator('tbody tr').count()) {
    await page.mouse.wheel(0, 20_000);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }

  console.log(`first list: ${paints.map(Math.round).join(', ')} ms after navigation began; at most ${FIRST_PAINT}`);
  console.log(`script of the first screen: ${(script / 1024).toFixed(1)} KiB gzip; at most ${FIRST_SCRIPT / 1024}`);
  for (const [name, all] of Object.entries(took)) {
    console.log(`${name}: ${all.map((ms) => ms || 'under 16').join(', ')} ms; at most ${INTERACTION}`);
  }
  expect(script).toBeLessThanOrEqual(FIRST_SCRIPT);
  expect(best(paints)).toBeLessThanOrEqual(FIRST_PAINT);
  for (const [name, all] of Object.entries(took)) expect(best(all), name).toBeLessThanOrEqual(INTERACTION);
});

const best = (figures: number[]) => Math.min(...figures);

/** Whether another round may tell more. */
function isNoisy(all: number[][], limit: number): boolean {
  const rounds = all[0]?.length ?? 0;
  return rounds < ROUNDS[0] || (rounds < ROUNDS[1] && all.some((figures) => best(figures) > limit));
}

/** From input to the next paint, as the browser's own event timing has it. */
function watchFrames() {
  let longest = 0;
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) longest = Math.max(longest, entry.duration);
  });
  observer.observe({ type: 'event', durationThreshold: 16 } as PerformanceObserverInit);
  (window as any).longestInteraction = async () => {
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
    for (const entry of observer.takeRecords()) longest = Math.max(longest, entry.duration);
    observer.disconnect();
    return longest;
  };
}
