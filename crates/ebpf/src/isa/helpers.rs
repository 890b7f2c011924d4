//! The kernel's BPF helpers: number, name, and number of arguments. Behind them are those that only processes have.
//!
//! Source of facts: `__BPF_FUNC_MAPPER` and the helper descriptions in `include/uapi/linux/bpf.h`
//! (Linux 6.2 and later; the list has been closed since, new functions are kfuncs).

/// Results of helpers, which code compares as 32 bits. Before 6.4 the kernel's map functions, which
/// compiled programs call directly, return an int with the upper half of r0 zero.
pub mod errno {
    /// The map is full.
    pub const E2BIG: i32 = -7;
    /// The key exists: another processor inserted it first.
    pub const EEXIST: i32 = -17;
}

/// `BPF_NOEXIST`, a flag of updates: insert only if the key is absent.
pub const NOEXIST: i32 = 1;

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperInfo {
    /// Its number.
    pub id: u32,
    /// Its name, as `bpf_map_lookup_elem`.
    pub name: &'static str,
    /// Number of arguments, in r1 and up. Helpers with `...` count as 5.
    pub args: u8,
}

macro_rules! helpers {
    ($($v:ident = $id:literal, $name:literal, $args:literal;)*) => {
        /// A helper by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Helper {
            $(#[doc = concat!("`", $name, "`, ", $args, " arguments.")] $v = $id),*
        }

        /// All helpers; the one with number `n` is at `n - 1`.
        pub const TABLE: &[HelperInfo] = &[
            $(HelperInfo { id: $id, name: $name, args: $args }),*
        ];
    };
}

helpers! {
    MapLookupElem = 1, "bpf_map_lookup_elem", 2;
    MapUpdateElem = 2, "bpf_map_update_elem", 4;
    MapDeleteElem = 3, "bpf_map_delete_elem", 2;
    ProbeRead = 4, "bpf_probe_read", 3;
    KtimeGetNs = 5, "bpf_ktime_get_ns", 0;
    TracePrintk = 6, "bpf_trace_printk", 5;
    GetPrandomU32 = 7, "bpf_get_prandom_u32", 0;
    GetSmpProcessorId = 8, "bpf_get_smp_processor_id", 0;
    SkbStoreBytes = 9, "bpf_skb_store_bytes", 5;
    L3CsumReplace = 10, "bpf_l3_csum_replace", 5;
    L4CsumReplace = 11, "bpf_l4_csum_replace", 5;
    TailCall = 12, "bpf_tail_call", 3;
    CloneRedirect = 13, "bpf_clone_redirect", 3;
    GetCurrentPidTgid = 14, "bpf_get_current_pid_tgid", 0;
    GetCurrentUidGid = 15, "bpf_get_current_uid_gid", 0;
    GetCurrentComm = 16, "bpf_get_current_comm", 2;
    GetCgroupClassid = 17, "bpf_get_cgroup_classid", 1;
    SkbVlanPush = 18, "bpf_skb_vlan_push", 3;
    SkbVlanPop = 19, "bpf_skb_vlan_pop", 1;
    SkbGetTunnelKey = 20, "bpf_skb_get_tunnel_key", 4;
    SkbSetTunnelKey = 21, "bpf_skb_set_tunnel_key", 4;
    PerfEventRead = 22, "bpf_perf_event_read", 2;
    Redirect = 23, "bpf_redirect", 2;
    GetRouteRealm = 24, "bpf_get_route_realm", 1;
    PerfEventOutput = 25, "bpf_perf_event_output", 5;
    SkbLoadBytes = 26, "bpf_skb_load_bytes", 4;
    GetStackid = 27, "bpf_get_stackid", 3;
    CsumDiff = 28, "bpf_csum_diff", 5;
    SkbGetTunnelOpt = 29, "bpf_skb_get_tunnel_opt", 3;
    SkbSetTunnelOpt = 30, "bpf_skb_set_tunnel_opt", 3;
    SkbChangeProto = 31, "bpf_skb_change_proto", 3;
    SkbChangeType = 32, "bpf_skb_change_type", 2;
    SkbUnderCgroup = 33, "bpf_skb_under_cgroup", 3;
    GetHashRecalc = 34, "bpf_get_hash_recalc", 1;
    GetCurrentTask = 35, "bpf_get_current_task", 0;
    ProbeWriteUser = 36, "bpf_probe_write_user", 3;
    CurrentTaskUnderCgroup = 37, "bpf_current_task_under_cgroup", 2;
    SkbChangeTail = 38, "bpf_skb_change_tail", 3;
    SkbPullData = 39, "bpf_skb_pull_data", 2;
    CsumUpdate = 40, "bpf_csum_update", 2;
    SetHashInvalid = 41, "bpf_set_hash_invalid", 1;
    GetNumaNodeId = 42, "bpf_get_numa_node_id", 0;
    SkbChangeHead = 43, "bpf_skb_change_head", 3;
    XdpAdjustHead = 44, "bpf_xdp_adjust_head", 2;
    ProbeReadStr = 45, "bpf_probe_read_str", 3;
    GetSocketCookie = 46, "bpf_get_socket_cookie", 1;
    GetSocketUid = 47, "bpf_get_socket_uid", 1;
    SetHash = 48, "bpf_set_hash", 2;
    Setsockopt = 49, "bpf_setsockopt", 5;
    SkbAdjustRoom = 50, "bpf_skb_adjust_room", 4;
    RedirectMap = 51, "bpf_redirect_map", 3;
    SkRedirectMap = 52, "bpf_sk_redirect_map", 4;
    SockMapUpdate = 53, "bpf_sock_map_update", 4;
    XdpAdjustMeta = 54, "bpf_xdp_adjust_meta", 2;
    PerfEventReadValue = 55, "bpf_perf_event_read_value", 4;
    PerfProgReadValue = 56, "bpf_perf_prog_read_value", 3;
    Getsockopt = 57, "bpf_getsockopt", 5;
    OverrideReturn = 58, "bpf_override_return", 2;
    SockOpsCbFlagsSet = 59, "bpf_sock_ops_cb_flags_set", 2;
    MsgRedirectMap = 60, "bpf_msg_redirect_map", 4;
    MsgApplyBytes = 61, "bpf_msg_apply_bytes", 2;
    MsgCorkBytes = 62, "bpf_msg_cork_bytes", 2;
    MsgPullData = 63, "bpf_msg_pull_data", 4;
    Bind = 64, "bpf_bind", 3;
    XdpAdjustTail = 65, "bpf_xdp_adjust_tail", 2;
    SkbGetXfrmState = 66, "bpf_skb_get_xfrm_state", 5;
    GetStack = 67, "bpf_get_stack", 4;
    SkbLoadBytesRelative = 68, "bpf_skb_load_bytes_relative", 5;
    FibLookup = 69, "bpf_fib_lookup", 4;
    SockHashUpdate = 70, "bpf_sock_hash_update", 4;
    MsgRedirectHash = 71, "bpf_msg_redirect_hash", 4;
    SkRedirectHash = 72, "bpf_sk_redirect_hash", 4;
    LwtPushEncap = 73, "bpf_lwt_push_encap", 4;
    LwtSeg6StoreBytes = 74, "bpf_lwt_seg6_store_bytes", 4;
    LwtSeg6AdjustSrh = 75, "bpf_lwt_seg6_adjust_srh", 3;
    LwtSeg6Action = 76, "bpf_lwt_seg6_action", 4;
    RcRepeat = 77, "bpf_rc_repeat", 1;
    RcKeydown = 78, "bpf_rc_keydown", 4;
    SkbCgroupId = 79, "bpf_skb_cgroup_id", 1;
    GetCurrentCgroupId = 80, "bpf_get_current_cgroup_id", 0;
    GetLocalStorage = 81, "bpf_get_local_storage", 2;
    SkSelectReuseport = 82, "bpf_sk_select_reuseport", 4;
    SkbAncestorCgroupId = 83, "bpf_skb_ancestor_cgroup_id", 2;
    SkLookupTcp = 84, "bpf_sk_lookup_tcp", 5;
    SkLookupUdp = 85, "bpf_sk_lookup_udp", 5;
    SkRelease = 86, "bpf_sk_release", 1;
    MapPushElem = 87, "bpf_map_push_elem", 3;
    MapPopElem = 88, "bpf_map_pop_elem", 2;
    MapPeekElem = 89, "bpf_map_peek_elem", 2;
    MsgPushData = 90, "bpf_msg_push_data", 4;
    MsgPopData = 91, "bpf_msg_pop_data", 4;
    RcPointerRel = 92, "bpf_rc_pointer_rel", 3;
    SpinLock = 93, "bpf_spin_lock", 1;
    SpinUnlock = 94, "bpf_spin_unlock", 1;
    SkFullsock = 95, "bpf_sk_fullsock", 1;
    TcpSock = 96, "bpf_tcp_sock", 1;
    SkbEcnSetCe = 97, "bpf_skb_ecn_set_ce", 1;
    GetListenerSock = 98, "bpf_get_listener_sock", 1;
    SkcLookupTcp = 99, "bpf_skc_lookup_tcp", 5;
    TcpCheckSyncookie = 100, "bpf_tcp_check_syncookie", 5;
    SysctlGetName = 101, "bpf_sysctl_get_name", 4;
    SysctlGetCurrentValue = 102, "bpf_sysctl_get_current_value", 3;
    SysctlGetNewValue = 103, "bpf_sysctl_get_new_value", 3;
    SysctlSetNewValue = 104, "bpf_sysctl_set_new_value", 3;
    Strtol = 105, "bpf_strtol", 4;
    Strtoul = 106, "bpf_strtoul", 4;
    SkStorageGet = 107, "bpf_sk_storage_get", 4;
    SkStorageDelete = 108, "bpf_sk_storage_delete", 2;
    SendSignal = 109, "bpf_send_signal", 1;
    TcpGenSyncookie = 110, "bpf_tcp_gen_syncookie", 5;
    SkbOutput = 111, "bpf_skb_output", 5;
    ProbeReadUser = 112, "bpf_probe_read_user", 3;
    ProbeReadKernel = 113, "bpf_probe_read_kernel", 3;
    ProbeReadUserStr = 114, "bpf_probe_read_user_str", 3;
    ProbeReadKernelStr = 115, "bpf_probe_read_kernel_str", 3;
    TcpSendAck = 116, "bpf_tcp_send_ack", 2;
    SendSignalThread = 117, "bpf_send_signal_thread", 1;
    Jiffies64 = 118, "bpf_jiffies64", 0;
    ReadBranchRecords = 119, "bpf_read_branch_records", 4;
    GetNsCurrentPidTgid = 120, "bpf_get_ns_current_pid_tgid", 4;
    XdpOutput = 121, "bpf_xdp_output", 5;
    GetNetnsCookie = 122, "bpf_get_netns_cookie", 1;
    GetCurrentAncestorCgroupId = 123, "bpf_get_current_ancestor_cgroup_id", 1;
    SkAssign = 124, "bpf_sk_assign", 3;
    KtimeGetBootNs = 125, "bpf_ktime_get_boot_ns", 0;
    SeqPrintf = 126, "bpf_seq_printf", 5;
    SeqWrite = 127, "bpf_seq_write", 3;
    SkCgroupId = 128, "bpf_sk_cgroup_id", 1;
    SkAncestorCgroupId = 129, "bpf_sk_ancestor_cgroup_id", 2;
    RingbufOutput = 130, "bpf_ringbuf_output", 4;
    RingbufReserve = 131, "bpf_ringbuf_reserve", 3;
    RingbufSubmit = 132, "bpf_ringbuf_submit", 2;
    RingbufDiscard = 133, "bpf_ringbuf_discard", 2;
    RingbufQuery = 134, "bpf_ringbuf_query", 2;
    CsumLevel = 135, "bpf_csum_level", 2;
    SkcToTcp6Sock = 136, "bpf_skc_to_tcp6_sock", 1;
    SkcToTcpSock = 137, "bpf_skc_to_tcp_sock", 1;
    SkcToTcpTimewaitSock = 138, "bpf_skc_to_tcp_timewait_sock", 1;
    SkcToTcpRequestSock = 139, "bpf_skc_to_tcp_request_sock", 1;
    SkcToUdp6Sock = 140, "bpf_skc_to_udp6_sock", 1;
    GetTaskStack = 141, "bpf_get_task_stack", 4;
    LoadHdrOpt = 142, "bpf_load_hdr_opt", 4;
    StoreHdrOpt = 143, "bpf_store_hdr_opt", 4;
    ReserveHdrOpt = 144, "bpf_reserve_hdr_opt", 3;
    InodeStorageGet = 145, "bpf_inode_storage_get", 4;
    InodeStorageDelete = 146, "bpf_inode_storage_delete", 2;
    DPath = 147, "bpf_d_path", 3;
    CopyFromUser = 148, "bpf_copy_from_user", 3;
    SnprintfBtf = 149, "bpf_snprintf_btf", 5;
    SeqPrintfBtf = 150, "bpf_seq_printf_btf", 4;
    SkbCgroupClassid = 151, "bpf_skb_cgroup_classid", 1;
    RedirectNeigh = 152, "bpf_redirect_neigh", 4;
    PerCpuPtr = 153, "bpf_per_cpu_ptr", 2;
    ThisCpuPtr = 154, "bpf_this_cpu_ptr", 1;
    RedirectPeer = 155, "bpf_redirect_peer", 2;
    TaskStorageGet = 156, "bpf_task_storage_get", 4;
    TaskStorageDelete = 157, "bpf_task_storage_delete", 2;
    GetCurrentTaskBtf = 158, "bpf_get_current_task_btf", 0;
    BprmOptsSet = 159, "bpf_bprm_opts_set", 2;
    KtimeGetCoarseNs = 160, "bpf_ktime_get_coarse_ns", 0;
    ImaInodeHash = 161, "bpf_ima_inode_hash", 3;
    SockFromFile = 162, "bpf_sock_from_file", 1;
    CheckMtu = 163, "bpf_check_mtu", 5;
    ForEachMapElem = 164, "bpf_for_each_map_elem", 4;
    Snprintf = 165, "bpf_snprintf", 5;
    SysBpf = 166, "bpf_sys_bpf", 3;
    BtfFindByNameKind = 167, "bpf_btf_find_by_name_kind", 4;
    SysClose = 168, "bpf_sys_close", 1;
    TimerInit = 169, "bpf_timer_init", 3;
    TimerSetCallback = 170, "bpf_timer_set_callback", 2;
    TimerStart = 171, "bpf_timer_start", 3;
    TimerCancel = 172, "bpf_timer_cancel", 1;
    GetFuncIp = 173, "bpf_get_func_ip", 1;
    GetAttachCookie = 174, "bpf_get_attach_cookie", 1;
    TaskPtRegs = 175, "bpf_task_pt_regs", 1;
    GetBranchSnapshot = 176, "bpf_get_branch_snapshot", 3;
    TraceVprintk = 177, "bpf_trace_vprintk", 4;
    SkcToUnixSock = 178, "bpf_skc_to_unix_sock", 1;
    KallsymsLookupName = 179, "bpf_kallsyms_lookup_name", 4;
    FindVma = 180, "bpf_find_vma", 5;
    Loop = 181, "bpf_loop", 4;
    Strncmp = 182, "bpf_strncmp", 3;
    GetFuncArg = 183, "bpf_get_func_arg", 3;
    GetFuncRet = 184, "bpf_get_func_ret", 2;
    GetFuncArgCnt = 185, "bpf_get_func_arg_cnt", 1;
    GetRetval = 186, "bpf_get_retval", 0;
    SetRetval = 187, "bpf_set_retval", 1;
    XdpGetBuffLen = 188, "bpf_xdp_get_buff_len", 1;
    XdpLoadBytes = 189, "bpf_xdp_load_bytes", 4;
    XdpStoreBytes = 190, "bpf_xdp_store_bytes", 4;
    CopyFromUserTask = 191, "bpf_copy_from_user_task", 5;
    SkbSetTstamp = 192, "bpf_skb_set_tstamp", 3;
    ImaFileHash = 193, "bpf_ima_file_hash", 3;
    KptrXchg = 194, "bpf_kptr_xchg", 2;
    MapLookupPercpuElem = 195, "bpf_map_lookup_percpu_elem", 3;
    SkcToMptcpSock = 196, "bpf_skc_to_mptcp_sock", 1;
    DynptrFromMem = 197, "bpf_dynptr_from_mem", 4;
    RingbufReserveDynptr = 198, "bpf_ringbuf_reserve_dynptr", 4;
    RingbufSubmitDynptr = 199, "bpf_ringbuf_submit_dynptr", 2;
    RingbufDiscardDynptr = 200, "bpf_ringbuf_discard_dynptr", 2;
    DynptrRead = 201, "bpf_dynptr_read", 5;
    DynptrWrite = 202, "bpf_dynptr_write", 5;
    DynptrData = 203, "bpf_dynptr_data", 3;
    TcpRawGenSyncookieIpv4 = 204, "bpf_tcp_raw_gen_syncookie_ipv4", 3;
    TcpRawGenSyncookieIpv6 = 205, "bpf_tcp_raw_gen_syncookie_ipv6", 3;
    TcpRawCheckSyncookieIpv4 = 206, "bpf_tcp_raw_check_syncookie_ipv4", 2;
    TcpRawCheckSyncookieIpv6 = 207, "bpf_tcp_raw_check_syncookie_ipv6", 2;
    KtimeGetTaiNs = 208, "bpf_ktime_get_tai_ns", 0;
    UserRingbufDrain = 209, "bpf_user_ringbuf_drain", 4;
    CgrpStorageGet = 210, "bpf_cgrp_storage_get", 4;
    CgrpStorageDelete = 211, "bpf_cgrp_storage_delete", 2;
    // Only in processes: the kernel has none of these numbers.
    Yield = 212, "yield", 1;
    Processor = 213, "processor", 0;
}

/// Number of the kernel's helpers.
pub const OF_KERNEL: u32 = 211;

/// The helpers that a process has: all that its handlers may call.
pub const OF_PROCESS: &[Helper] = &[
    Helper::MapLookupElem,
    Helper::MapUpdateElem,
    Helper::MapDeleteElem,
    Helper::KtimeGetNs,
    Helper::GetPrandomU32,
    Helper::GetSmpProcessorId,
    Helper::GetCurrentPidTgid,
    Helper::GetCurrentTask,
    Helper::ProbeWriteUser,
    Helper::ProbeReadUser,
    Helper::ProbeReadKernel,
    Helper::ProbeReadUserStr,
    Helper::ProbeReadKernelStr,
    Helper::SendSignalThread,
    Helper::Jiffies64,
    Helper::RingbufOutput,
    Helper::RingbufQuery,
    Helper::GetCurrentTaskBtf,
    Helper::ForEachMapElem,
    Helper::GetFuncIp,
    Helper::GetAttachCookie,
    Helper::TaskPtRegs,
    Helper::Loop,
    Helper::Yield,
    Helper::Processor,
];

impl Helper {
    /// The helper's number.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The helper's row.
    pub fn info(self) -> &'static HelperInfo {
        &TABLE[self as usize - 1]
    }
}

/// The helper with this number.
pub fn by_id(id: u32) -> Option<&'static HelperInfo> {
    TABLE.get((id as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_ordered_by_helper_number() {
        for (i, h) in TABLE.iter().enumerate() {
            assert_eq!(h.id as usize, i + 1, "{}", h.name);
            assert!(h.args <= 5);
            assert_eq!(by_id(h.id), Some(h));
        }
        let kernel = TABLE.iter().filter(|h| h.name.starts_with("bpf_"));
        assert_eq!(kernel.count() as u32, OF_KERNEL);
        assert_eq!((by_id(0), by_id(OF_KERNEL + 3)), (None, None));
        assert_eq!(Helper::RingbufOutput.id(), 130);
        assert_eq!(Helper::ForEachMapElem.info().args, 4);
    }
}
