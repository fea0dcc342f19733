module spawnery.cloud/tests/nodes/pause

go 1.26.0
