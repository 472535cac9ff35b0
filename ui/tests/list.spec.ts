import { expect, expectAccessible, screenshot, test } from './stand';

test('the list tells what is late, waits or failed, and why', async ({ page, stand, as }) => {
  await stand.createPipeline('film_dim', { freshness_limit_seconds: 3600, tags: ['films'] });
  await stand.createPipeline('film_rating_agg', { freshness_limit_seconds: 1, tags: ['films', 'ratings'] });
  await stand.createPipeline('user_features', { target_table: 'analytics.nowhere' });
  await stand.createPipeline('audience_segments', {});
  const tasks = [
    { order_index: 1, task_type: 'SQL', body: 'select id, title, modified from content.film_work' },
    { order_index: 2, task_type: 'PYTHON', body: 'score_films' },
  ];
  await stand.createPipeline('film_scores', { source_query: null, tasks });
  for (const name of ['film_dim', 'film_dim', 'film_rating_agg', 'film_dim', 'user_features'])
    await stand.runToEnd(name);
  await stand.call('POST', '/pipelines/film_rating_agg/disable');
  await stand.compareToEnd('film_dim');
  await stand.call('POST', '/pipelines/film_scores/run', {});

  await as('operator');
  await page.goto('/ui/');
  const row = (name: string) => page.locator(`tr[data-pipeline=${name}]`);
  await expect(row('film_dim').getByText('Idle')).toBeVisible();
  await expect(row('film_dim')).toContainText('50 rows');
  await expect(row('film_dim').getByText('Equal')).toBeVisible();
  await expect(row('film_rating_agg')).toContainText('never compared');
  await expect(row('film_rating_agg')).toContainText('Late: it is disabled');
  await expect(row('user_features').getByText('Failed')).toBeVisible();
  await expect(row('user_features')).toContainText('`vitrina mart` shows the statement that creates it');
  await expect(row('user_features')).toContainText('analytics.nowhere');
  await expect(row('audience_segments')).toContainText('never ran');
  await expect(row('film_scores')).toContainText(/Waits: no live runner .* has the Python function "score_films"/);
  await expect(page.getByRole('button', { name: 'Late 1' })).toBeVisible();
  await expectAccessible(page);
  await screenshot(page, 'pipelines', 'light');

  // Filters live in the address.
  await page.getByRole('button', { name: 'Failed 1' }).click();
  await expect(page).toHaveURL(/is=failed/);
  await expect(page.locator('tbody tr')).toHaveCount(1);
  await page.reload();
  await expect(page.locator('tbody tr')).toHaveCount(1);
  await page.getByRole('button', { name: 'All 5' }).click();
  await page.getByRole('searchbox').fill('rating');
  await expect(page).toHaveURL(/q=rating/);
  await expect(page.locator('tbody tr').first()).toHaveAttribute('data-pipeline', 'film_rating_agg');

  await page.goto('/ui/pipelines/film_scores');
  await expect(page.getByRole('alert')).toContainText('python.modules');
  await expectAccessible(page);
  await stand.call('POST', '/pipelines/film_scores/cancel');
  await expect(page.getByRole('alert')).toHaveCount(0);
});

test('a run that needs a decision asks for it where it was asked for', async ({ page, stand, as }) => {
  const incremental = { mode: 'incremental', incremental_key: 'modified', incremental_id_key: 'id' };
  await stand.createPipeline('film_changed', incremental);
  await stand.runToEnd('film_changed');
  await stand.call('POST', '/pipelines/film_changed/update-config', {
    source_query: 'select id, upper(title) as title, modified from content.film_work',
  });
  await as('operator');
  await page.goto('/ui/?q=film_changed');
  const row = page.locator('tr[data-pipeline=film_changed]');
  await row.getByRole('button', { name: 'Run film_changed' }).click();
  const dialog = page.getByRole('dialog', { name: 'It was changed since its checkpoint was made' });
  await expect(dialog).toContainText('always right');
  await expectAccessible(page);
  await dialog.getByRole('button', { name: 'Full load' }).click();
  await expect(dialog).toBeHidden();
  await expect(row).toContainText(/50 rows/);
  await expect.poll(() => stand.sql("select id from analytics.film_changed where title = 'FILM 7'")).toHaveLength(1);
  // Whether it is equal now was never asked: one click leads there.
  await row.getByRole('link', { name: 'never compared' }).click();
  await expect(page.getByRole('button', { name: 'Compare', exact: true })).toBeVisible();
});

test('pipelines are run and paused together, and what becomes of them is seen live', async ({ page, stand, as }) => {
  for (const name of ['many_1', 'many_2']) await stand.createPipeline(name);
  await stand.closeGate();
  await as('operator');
  await page.goto('/ui/?q=many');
  await page.getByLabel('Select all').check();
  await page.getByRole('button', { name: 'Run (2)' }).click();
  await expect(page.getByText('2 requests accepted')).toBeVisible();
  await expect(page.locator('[data-status=RUNNING]').first()).toBeVisible();
  await page.getByLabel('Select all').check();
  await page.getByRole('button', { name: 'Pause (2)' }).click();
  await expect(page.locator('[data-status=PAUSE_REQUESTED], [data-status=PAUSED]')).toHaveCount(2);
  await stand.openGate();
  await expect(page.locator('[data-status=PAUSED]')).toHaveCount(2);
});

test('an empty installation says how to begin', async ({ page, stand, as }) => {
  for (const { name } of (await stand.call('GET', '/pipelines')).items) {
    await stand.call('POST', `/pipelines/${name}/cancel`).catch(() => null);
    await stand.call('DELETE', `/pipelines/${name}`);
  }
  await as('admin');
  await page.goto('/ui/');
  await expect(page.getByText('There are no pipelines yet')).toBeVisible();
  await expectAccessible(page);
});
