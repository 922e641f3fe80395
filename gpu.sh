# cheats, false promotions, slow-downs on a GPU: each with its own limit, whatever became of the one before
export PYTHONPATH=$PWD:$PYTHONPATH PYTEST_ADDOPTS="-p r3bench.plugin"
began=$(date +%s)
timeout 85 python3 -m pytest -q -m gpu -p no:cacheprovider --durations=12 tests/cheats > $OUT/cheats.txt 2>&1; echo "cheats rc $? after $(( $(date +%s) - began )) s"
timeout 60 python3 -m tests.benchmarks.aa_promotions cuda 200 45 > $OUT/aa.txt 2>&1; echo "aa rc $? after $(( $(date +%s) - began )) s"
timeout 60 python3 -m tests.benchmarks.slow_downs cuda 10 12 > $OUT/slow.txt 2>&1; echo "slow rc $? after $(( $(date +%s) - began )) s"
grep -E "^(E  |FAILED|ERROR)|passed|failed" $OUT/cheats.txt | cut -c1-300 | tail -60
tail -12 $OUT/aa.txt; tail -14 $OUT/slow.txt
