"""Every bound in one place: sizes in bytes, times in microseconds unless the name says so."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US

# JSON at the edge
json_depth_max: Final = 64
json_nodes_max: Final = 65_536
json_integer_min: Final = -(2**63)
json_integer_max: Final = 2**63 - 1

# Scope and names
scope_part_bytes_max: Final = 256
title_bytes_max: Final = 1 * KIB
workspace_name_bytes_max: Final = 256

# Transcript
append_events_max: Final = 4_096
event_bytes_max: Final = 4 * MIB
append_bytes_max: Final = 16 * MIB
replay_events_max: Final = 100_000
replay_bytes_max: Final = 64 * MIB
snapshot_bytes_max: Final = 1 * MIB

# Agent turns and tool calls
batch_calls_max: Final = 128
tool_result_bytes_max: Final = 256 * KIB
diagnostic_bytes_max: Final = 1 * KIB
model_rounds_max: Final = 64
call_name_bytes_max: Final = 256
cancel_grace_us: Final = 5 * SECOND_US

# Leases
lease_ttl_us: Final = 300 * SECOND_US
lease_renew_every_us: Final = 60 * SECOND_US
import_lease_ttl_us: Final = 5 * SECOND_US
clock_step_back_audit_us: Final = 60 * SECOND_US

# Operations
operation_retention_us: Final = 30 * DAY_US

# Commit
commit_turns_max: Final = 32
commit_bytes_max: Final = 16 * MIB
busy_wait_us: Final = 5 * SECOND_US
first_open_wait_us: Final = 30 * SECOND_US

# Episodes and search
episode_text_bytes_max: Final = 8 * KIB
episode_append_max: Final = 1_024
labels_max: Final = 32
label_bytes_max: Final = 128
settle_episodes_max: Final = 256
query_terms_max: Final = 64
query_bytes_max: Final = 64 * KIB
search_limit_max: Final = 200

# Pages
page_items_max: Final = 1_000
page_bytes_max: Final = 16 * MIB

# Import
import_line_bytes_max: Final = 64 * MIB
import_places_max: Final = 100
import_zip_free_bytes: Final = 16 * MIB
import_zip_ratio_max: Final = 200
