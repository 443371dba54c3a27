#!/bin/sh
# A training that knows nothing of Swell: it prints its progress and keeps its own checkpoint.
mkdir -p "$CHECKPOINTS"
epoch=$(cat "$CHECKPOINTS/epoch" 2>/dev/null || echo 0)
while [ "$epoch" -lt 5 ]; do
    echo "round $((epoch + 1)) of 5 begins"
    sleep "${EPOCH_S:-1}"
    epoch=$((epoch + 1))
    echo "error was 0.$((9 - epoch))"
    echo "$epoch" > "$CHECKPOINTS/.epoch" && mv "$CHECKPOINTS/.epoch" "$CHECKPOINTS/epoch"
done
