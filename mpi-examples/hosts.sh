#!/usr/bin/env bash
# A fold on three hosts, which are network namespaces of this machine: one digest, even if one dies.
set -euo pipefail
# Bash compares file names byte by byte.
export LC_ALL=C

# The names of all namespaces begin with this name; the program removes them at the end.
fleet=hw$$
folder=$(mktemp -d)
hosts=(1 2 3)

remove() {
  for space in $(ip netns list 2>/dev/null | grep -o "^$fleet-[a-z0-9]*"); do
    ip netns pids "$space" | xargs -r kill -9 2>/dev/null || true
    ip netns delete "$space"
  done
  rm -rf "$folder"
}
trap remove EXIT
trap 'exit 1' INT TERM

# A switch, and a cable from it to each host.
if ! ip netns add "$fleet-switch"; then
  echo "hosts: skipped; network namespaces need root and the command ip"
  exit 0
fi
ip -n "$fleet-switch" link add bridge type bridge
ip -n "$fleet-switch" link set bridge up
for host in "${hosts[@]}"; do
  ip netns add "$fleet-$host"
  ip -n "$fleet-$host" link add eth0 type veth peer name "port$host" netns "$fleet-switch"
  ip -n "$fleet-switch" link set "port$host" master bridge up
  ip -n "$fleet-$host" address add "10.77.0.$host/24" dev eth0
  ip -n "$fleet-$host" link set eth0 up
  ip -n "$fleet-$host" link set lo up
done

# Runs a command on a host, under the host's own name.
cat >"$folder/on" <<SCRIPT
#!/usr/bin/env bash
host=\${1##*.}
shift
exec ip netns exec "$fleet-\$host" unshare -u bash -c "hostname node\$host; \$*"
SCRIPT
chmod +x "$folder/on"
export PRTE_MCA_plm_ssh_agent="$folder/on"

# Runs the job from the first host, with one rank on each host; --resume continues it.
fleet_gram() {
  "$folder/on" 10.77.0.1 mpirun --with-ft ulfm --host 10.77.0.1:1,10.77.0.2:1,10.77.0.3:1 -n 3 \
    --prtemca prte_if_include 10.77.0.0/24 \
    --mca btl_tcp_if_include 10.77.0.0/24 "$gram" --checkpoint-dir "$folder/ck" \
    --checkpoint-every 0 "$@"
}

python - "$folder/x.npy" <<'PYTHON'
import sys
import numpy as np
np.save(sys.argv[1], np.random.default_rng(3).standard_normal((400_000, 200), np.float32))
PYTHON
gram="headwater-reduce gram --input $folder/x.npy --out $folder/g.npy --chunk-rows 8
  --block-chunks 64 --threads 1"
gram=${gram//$'\n'/ }
field() { python -c 'import json, sys; print(json.loads(sys.stdin.readlines()[-1])[sys.argv[1]])' "$1"; }


alone=$($gram | field digest)
echo "alone        $alone"
# The last line decides, not the exit status of mpirun, which may be of something after the result.
three=$({ fleet_gram || true; } | field digest)
echo "three hosts  $three"
test "$three" = "$alone"

# The rank of the third host is killed when a tenth of the 50,000 chunks are folded. If it dies while
# it connects to rank 0 for the first time, Open MPI may wait for its address without end.
rm -r "$folder/ck"
fleet_gram >"$folder/two.json" &
run=$!
for _ in $(seq 3000); do
  checkpoints=("$folder"/ck/fold-*.portion)
  [[ ${checkpoints[-1]} > $folder/ck/fold-000000005000 ]] && break
  sleep 0.02
done
for process in $(ip netns pids "$fleet-3"); do
  if [ "$(cat "/proc/$process/comm")" = headwater-reduc ]; then
    kill -9 "$process"
  fi
done
for _ in $(seq 600); do
  kill -0 "$run" 2>/dev/null || break
  sleep 0.1
done
if kill -0 "$run" 2>/dev/null; then
  echo "Open MPI waits for the dead rank; ending the job and continuing with --resume"
  for space in $(ip netns list | grep -o "^$fleet-[0-9]*"); do
    ip netns pids "$space" | xargs -r kill -9
  done
  wait "$run" || true
  fleet_gram --resume >"$folder/two.json"
else
  wait "$run" || true
  test "$(field lost_ranks <"$folder/two.json")" = "[2]"
fi
echo "without one  $(field digest <"$folder/two.json")"
test "$(field digest <"$folder/two.json")" = "$alone"
echo "hosts: one digest on three hosts, and when a rank dies on the third"
