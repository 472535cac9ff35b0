// What an operator does with a pipeline: run, watch, pause, resume, cancel, mend what was refused, set back.

import type { Route } from '@playwright/test';

import { expect, expectAccessible, screenshot, test } from './stand';

test('a run is asked for, watched, paused, resumed and cancelled', async ({ page, stand, as }) => {
  await stand.createPipeline('film_dim', { freshness_limit_seconds: 3600, description: 'One row a film' });
  await stand.closeGate();
  await as('operator');
  await page.goto('/ui/pipelines/film_dim');
  await expect(page.getByText('never ran')).toBeVisible();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page).toHaveURL(/\/runs\/[0-9a-f-]{36}$/);
  const heading = page.getByRole('heading', { name: 'film_dim' }).locator('..');
  await expect(heading.locator('[data-status=RUNNING]')).toBeVisible();
  // Two batches of ten get through before the gate.
  await expect(page.getByRole('definition').filter({ hasText: /^20$/ }).first()).toBeVisible();
  await page.getByRole('button', { name: 'Pause' }).click();
  await expect(heading.locator('[data-status=PAUSE_REQUESTED]')).toBeVisible();
  await stand.openGate();
  await expect(heading.locator('[data-status=PAUSED]')).toBeVisible();
  await stand.closeGate();
  await page.getByRole('button', { name: 'Resume' }).click();
  await expect(heading.locator('[data-status=PAUSED]')).toHaveCount(0);
  await stand.openGate();
  await expect(heading.locator('[data-status=IDLE]')).toBeVisible();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();

  await stand.sql('delete from analytics.film_dim where id = 25');
  await stand.closeGate();
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(heading.locator('[data-status=RUNNING]')).toBeVisible();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  // Heard, or already done: only then may the run go on.
  const cancelled = page.locator('main [data-status=CANCELLED]').first();
  await expect(page.getByText('is being cancelled').or(cancelled)).toBeVisible();
  await stand.openGate();
  await expect(cancelled).toBeVisible();
});

test('a run shows its throughput, where the time of each batch went, and its log', async ({ page, stand, as }) => {
  await stand.runToEnd('film_dim');
  await as('viewer');
  await page.goto('/ui/pipelines/film_dim');
  await expectAccessible(page);
  await page.getByRole('link', { name: 'Open', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Throughput' })).toBeVisible();
  await expect(page.getByRole('img', { name: /Rows a second/ })).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Batches: where the time went' })).toBeVisible();
  await expectAccessible(page);
  await screenshot(page, 'run', 'dark');

  await page.getByRole('link', { name: 'Logs' }).first().click();
  const log = page.getByRole('log');
  await expect(log).toContainText('run ended');
  await page.getByRole('searchbox').fill('run started');
  await expect(log.locator('p')).toHaveCount(1);
  const waiting = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  expect((await waiting).suggestedFilename()).toMatch(/^film_dim-.*\.ndjson$/);
  await expectAccessible(page);

  await page.goto('/ui/pipelines/film_dim/runs');
  await page.getByLabel('Status').selectOption('CANCELLED');
  await expect(page.locator('tbody tr')).toHaveCount(1);
  await expectAccessible(page);
});

test('what failed says what to do, and runs again when it is mended', async ({ page, stand, as }) => {
  await stand.createPipeline('film_nowhere', { target_table: 'analytics.nowhere' });
  await stand.runToEnd('film_nowhere');
  await as('operator');
  await page.goto('/ui/pipelines/film_nowhere');
  const alert = page.getByRole('alert');
  await expect(alert).toContainText('What to do:');
  await expect(alert).toContainText('vitrina mart');
  await expectAccessible(page);
  await stand.sql('create table analytics.nowhere (id bigint primary key, title text, modified timestamptz)');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
});

test('a rejected row is seen with its reason, mended and replayed', async ({ page, stand, as }) => {
  await stand.sql('alter table analytics.nowhere add constraint short check (length(title) < 20)');
  await stand.sql("update content.film_work set title = 'a title that is far too long' where id = 7");
  await stand.call('POST', '/pipelines/film_nowhere/update-config', { reject_limit: 5 });
  await stand.runToEnd('film_nowhere');
  await as('operator');
  await page.goto('/ui/pipelines/film_nowhere');
  await expect(page.getByRole('alert')).toContainText('1 row is rejected and missing in the target');
  await page.getByRole('link', { name: 'Rejects' }).first().click();
  await expect(page.locator('tbody tr')).toContainText('23514');
  await page.getByText('Show', { exact: true }).click();
  await expect(page.locator('tbody pre')).toContainText('a title that is far too long');
  await expectAccessible(page);
  await screenshot(page, 'rejects', 'light');

  // Where did this row go?
  await page.getByRole('searchbox').fill('7');
  await expect(page.locator('tbody tr')).toHaveCount(1);
  await page.getByRole('searchbox').fill('8');
  await expect(page.getByText('No rejected row of this page has such a key')).toBeVisible();
  await page.getByRole('searchbox').fill('');

  await stand.sql("update content.film_work set title = 'mended' where id = 7");
  await page.getByRole('button', { name: 'Retry' }).click();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  await expect(page.getByText('backfill of 1 key')).toBeVisible();
  await page.getByRole('link', { name: 'Rejects', exact: true }).click();
  await expect(page.getByText('No row is rejected')).toBeVisible();
  expect(await stand.sql('select title from analytics.nowhere where id = 7')).toEqual([{ title: 'mended' }]);
});

test('rows are read again by their keys', async ({ page, stand, as }) => {
  await stand.sql("update analytics.nowhere set title = 'spoilt' where id in (3, 4)");
  await as('operator');
  await page.goto('/ui/pipelines/film_nowhere');
  await page.getByRole('button', { name: 'Backfill…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Read rows again' });
  await expectAccessible(page);
  await dialog.getByLabel(/^Keys/).fill('3\n4');
  await dialog.getByRole('button', { name: 'Read again' }).click();
  await expect(page.getByText('backfill of 2 keys')).toBeVisible();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
  expect(await stand.sql("select id::int from analytics.nowhere where title = 'spoilt'")).toEqual([]);
});

test('a checkpoint is changed only after it is seen what that costs', async ({ page, stand, as }) => {
  await stand.createPipeline('film_incremental', {
    mode: 'incremental',
    incremental_key: 'modified',
    incremental_id_key: 'id',
  });
  await stand.runToEnd('film_incremental');
  await stand.sql('analyze content.film_work');
  await as('operator');
  await page.goto('/ui/pipelines/film_incremental/state');
  const dialog = page.getByRole('dialog');
  await page.getByRole('button', { name: 'Edit position…' }).click();
  await dialog.getByRole('textbox').fill('{"bound": [');
  await dialog.getByRole('button', { name: 'What would it cost?' }).click();
  await expect(dialog).toContainText('This is no JSON');
  await dialog.getByRole('textbox').fill('{"bound": ["2020-01-01T00:00:00Z", "1"]}');
  await dialog.getByRole('button', { name: 'What would it cost?' }).click();
  await expect(dialog).toContainText('About 50 rows would be read again');
  await expectAccessible(page);
  await screenshot(page, 'state', 'dark');
  await dialog.getByRole('button', { name: 'Change the checkpoint' }).click();
  await expect(page.getByText('The checkpoint is changed')).toBeVisible();
  await expect(page.locator('tbody tr').first()).toContainText('edit');

  await page.getByRole('button', { name: 'Reset…' }).click();
  await expect(dialog).toContainText(/rows would be read again/);
  await dialog.getByRole('button', { name: 'Change the checkpoint' }).click();
  await expect(page.locator('tbody tr').first()).toContainText('reset');
});

test('what happens before the stream of events is open is shown as well', async ({ page, stand, as }) => {
  await stand.sql('truncate analytics.film_dim');
  await stand.closeGate();
  const { run_id } = await stand.call('POST', '/pipelines/film_dim/run', {});
  await expect.poll(async () => (await stand.call('GET', `/runs/${run_id}`)).status).toBe('RUNNING');
  await as('operator');
  const late = held();
  await page.route('**/api/v1/events', async (route) => {
    await late.until();
    await route.continue();
  });
  await page.goto(`/ui/pipelines/film_dim/runs/${run_id}`);
  await expect(page.locator('section [data-status=RUNNING]')).toBeVisible();
  await stand.openGate();
  await stand.call('GET', `/runs/${run_id}?wait=30`);
  late.go();
  await expect(page.locator('section [data-status=SUCCESS]').first()).toBeVisible();
});

test('news is not undone by an answer that was asked for before', async ({ page, stand, as }) => {
  await stand.sql('truncate analytics.film_dim');
  await stand.closeGate();
  await as('operator');
  // What the stream of events has told the page so far.
  await page.addInitScript(() => {
    const real = window.fetch;
    window.fetch = async (...call) => {
      const answer = await real(...call);
      if (!answer.url.endsWith('/api/v1/events') || !answer.body) return answer;
      const [shown, copied] = answer.body.tee();
      void copied
        .pipeThrough(new TextDecoderStream())
        .pipeTo(new WritableStream({ write: (text) => void (document.documentElement.dataset['heard'] += text) }));
      return new Response(shown, answer);
    };
  });
  const late = held();
  const first = async (route: Route) => {
    const answer = await (await route.fetch()).json();
    await late.until();
    await route.fulfill({ json: { ...answer, rows_read: 0, batches: 0 } });
  };
  await page.route(/\/api\/v1\/runs\/[0-9a-f-]{36}$/, first, { times: 1 });
  // It runs, and has nothing to tell yet.
  await stand.sql('begin; lock table analytics.film_dim in share mode');
  await page.goto('/ui/pipelines/film_dim');
  await stand.call('POST', '/pipelines/film_dim/run', {});
  // Of the last run, that is: the counts of a week have it, too, and may be asked for first.
  const last = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Last run' }) });
  await expect(last.locator('[data-status=RUNNING]')).toBeVisible();
  await last.getByRole('link', { name: 'Open', exact: true }).click();
  await late.reached;
  await stand.sql('commit');
  await expect(page.locator('html')).toHaveAttribute('data-heard', /"rows_read":20,/);
  late.go();
  await expect(page.getByRole('definition').filter({ hasText: /^20$/ }).first()).toBeVisible();
  await stand.openGate();
  await expect(page.locator('main [data-status=SUCCESS]').first()).toBeVisible();
});

test('what is shown is how it stands, whichever answer comes last', async ({ page, stand, as }) => {
  await stand.sql('truncate analytics.film_dim');
  await stand.closeGate();
  const { run_id } = await stand.call('POST', '/pipelines/film_dim/run', {});
  await as('operator');
  await page.goto(`/ui/pipelines/film_dim/runs/${run_id}`);
  const heading = page.getByRole('heading', { name: 'film_dim' }).locator('..');
  await expect(heading.locator('[data-status=RUNNING]')).toBeVisible();
  // How the pipeline stands when a pause is asked for is told only after the run has paused.
  const late = held();
  await page.route('**/api/v1/pipelines/film_dim', async (route) => {
    const response = await route.fetch();
    await late.until();
    await route.fulfill({ response });
  });
  const asked = page.waitForRequest('**/api/v1/pipelines/film_dim');
  const accepted = page.waitForResponse('**/api/v1/pipelines/film_dim/pause');
  await page.getByRole('button', { name: 'Pause' }).click();
  await Promise.all([accepted, late.reached]);
  await stand.openGate();
  await expect(page.locator('section [data-status=PAUSED]').first()).toBeVisible();
  late.go();
  await (await (await asked).response())!.finished();
  await page.evaluate(() => new Promise((painted) => setTimeout(() => requestAnimationFrame(painted))));
  // Sooner than the screen would ask again in any case.
  await expect(heading.locator('[data-status=PAUSED]')).toBeVisible({ timeout: 10_000 });
});

/** What the first one to come waits at, until it may go. */
function held() {
  let go = () => {};
  let reach = () => {};
  const open = new Promise<void>((resolve) => (go = resolve));
  const reached = new Promise<void>((resolve) => (reach = resolve));
  let first = true;
  const until = async () => {
    if (!first) return;
    first = false;
    reach();
    await open;
  };
  return { until, reached, go };
}
