//! The kernel's BPF helpers: number, name, number of arguments, and result.
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

/// The content of r0 after a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// Nothing useful.
    Void,
    /// A number; errors are negative.
    Int,
    /// A pointer, or null.
    Ptr,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelperInfo {
    /// Its number.
    pub id: u32,
    /// Its name, as `bpf_map_lookup_elem`.
    pub name: &'static str,
    /// Number of arguments, in r1 and up. Helpers with `...` count as 5.
    pub args: u8,
    /// The content of r0 afterwards.
    pub returns: Returns,
}

macro_rules! helpers {
    ($($v:ident = $id:literal, $name:literal, $args:literal, $ret:ident;)*) => {
        /// A helper by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Helper {
            $(#[doc = concat!("`", $name, "`, ", $args, " arguments.")] $v = $id),*
        }

        /// All helpers; the one with number `n` is at `n - 1`.
        pub const TABLE: &[HelperInfo] = &[
            $(HelperInfo { id: $id, name: $name, args: $args, returns: Returns::$ret }),*
        ];
    };
}

helpers! {
    MapLookupElem = 1, "bpf_map_lookup_elem", 2, Ptr;
    MapUpdateElem = 2, "bpf_map_update_elem", 4, Int;
    MapDeleteElem = 3, "bpf_map_delete_elem", 2, Int;
    ProbeRead = 4, "bpf_probe_read", 3, Int;
    KtimeGetNs = 5, "bpf_ktime_get_ns", 0, Int;
    TracePrintk = 6, "bpf_trace_printk", 5, Int;
    GetPrandomU32 = 7, "bpf_get_prandom_u32", 0, Int;
    GetSmpProcessorId = 8, "bpf_get_smp_processor_id", 0, Int;
    SkbStoreBytes = 9, "bpf_skb_store_bytes", 5, Int;
    L3CsumReplace = 10, "bpf_l3_csum_replace", 5, Int;
    L4CsumReplace = 11, "bpf_l4_csum_replace", 5, Int;
    TailCall = 12, "bpf_tail_call", 3, Int;
    CloneRedirect = 13, "bpf_clone_redirect", 3, Int;
    GetCurrentPidTgid = 14, "bpf_get_current_pid_tgid", 0, Int;
    GetCurrentUidGid = 15, "bpf_get_current_uid_gid", 0, Int;
    GetCurrentComm = 16, "bpf_get_current_comm", 2, Int;
    GetCgroupClassid = 17, "bpf_get_cgroup_classid", 1, Int;
    SkbVlanPush = 18, "bpf_skb_vlan_push", 3, Int;
    SkbVlanPop = 19, "bpf_skb_vlan_pop", 1, Int;
    SkbGetTunnelKey = 20, "bpf_skb_get_tunnel_key", 4, Int;
    SkbSetTunnelKey = 21, "bpf_skb_set_tunnel_key", 4, Int;
    PerfEventRead = 22, "bpf_perf_event_read", 2, Int;
    Redirect = 23, "bpf_redirect", 2, Int;
    GetRouteRealm = 24, "bpf_get_route_realm", 1, Int;
    PerfEventOutput = 25, "bpf_perf_event_output", 5, Int;
    SkbLoadBytes = 26, "bpf_skb_load_bytes", 4, Int;
    GetStackid = 27, "bpf_get_stackid", 3, Int;
    CsumDiff = 28, "bpf_csum_diff", 5, Int;
    SkbGetTunnelOpt = 29, "bpf_skb_get_tunnel_opt", 3, Int;
    SkbSetTunnelOpt = 30, "bpf_skb_set_tunnel_opt", 3, Int;
    SkbChangeProto = 31, "bpf_skb_change_proto", 3, Int;
    SkbChangeType = 32, "bpf_skb_change_type", 2, Int;
    SkbUnderCgroup = 33, "bpf_skb_under_cgroup", 3, Int;
    GetHashRecalc = 34, "bpf_get_hash_recalc", 1, Int;
    GetCurrentTask = 35, "bpf_get_current_task", 0, Int;
    ProbeWriteUser = 36, "bpf_probe_write_user", 3, Int;
    CurrentTaskUnderCgroup = 37, "bpf_current_task_under_cgroup", 2, Int;
    SkbChangeTail = 38, "bpf_skb_change_tail", 3, Int;
    SkbPullData = 39, "bpf_skb_pull_data", 2, Int;
    CsumUpdate = 40, "bpf_csum_update", 2, Int;
    SetHashInvalid = 41, "bpf_set_hash_invalid", 1, Void;
    GetNumaNodeId = 42, "bpf_get_numa_node_id", 0, Int;
    SkbChangeHead = 43, "bpf_skb_change_head", 3, Int;
    XdpAdjustHead = 44, "bpf_xdp_adjust_head", 2, Int;
    ProbeReadStr = 45, "bpf_probe_read_str", 3, Int;
    GetSocketCookie = 46, "bpf_get_socket_cookie", 1, Int;
    GetSocketUid = 47, "bpf_get_socket_uid", 1, Int;
    SetHash = 48, "bpf_set_hash", 2, Int;
    Setsockopt = 49, "bpf_setsockopt", 5, Int;
    SkbAdjustRoom = 50, "bpf_skb_adjust_room", 4, Int;
    RedirectMap = 51, "bpf_redirect_map", 3, Int;
    SkRedirectMap = 52, "bpf_sk_redirect_map", 4, Int;
    SockMapUpdate = 53, "bpf_sock_map_update", 4, Int;
    XdpAdjustMeta = 54, "bpf_xdp_adjust_meta", 2, Int;
    PerfEventReadValue = 55, "bpf_perf_event_read_value", 4, Int;
    PerfProgReadValue = 56, "bpf_perf_prog_read_value", 3, Int;
    Getsockopt = 57, "bpf_getsockopt", 5, Int;
    OverrideReturn = 58, "bpf_override_return", 2, Int;
    SockOpsCbFlagsSet = 59, "bpf_sock_ops_cb_flags_set", 2, Int;
    MsgRedirectMap = 60, "bpf_msg_redirect_map", 4, Int;
    MsgApplyBytes = 61, "bpf_msg_apply_bytes", 2, Int;
    MsgCorkBytes = 62, "bpf_msg_cork_bytes", 2, Int;
    MsgPullData = 63, "bpf_msg_pull_data", 4, Int;
    Bind = 64, "bpf_bind", 3, Int;
    XdpAdjustTail = 65, "bpf_xdp_adjust_tail", 2, Int;
    SkbGetXfrmState = 66, "bpf_skb_get_xfrm_state", 5, Int;
    GetStack = 67, "bpf_get_stack", 4, Int;
    SkbLoadBytesRelative = 68, "bpf_skb_load_bytes_relative", 5, Int;
    FibLookup = 69, "bpf_fib_lookup", 4, Int;
    SockHashUpdate = 70, "bpf_sock_hash_update", 4, Int;
    MsgRedirectHash = 71, "bpf_msg_redirect_hash", 4, Int;
    SkRedirectHash = 72, "bpf_sk_redirect_hash", 4, Int;
    LwtPushEncap = 73, "bpf_lwt_push_encap", 4, Int;
    LwtSeg6StoreBytes = 74, "bpf_lwt_seg6_store_bytes", 4, Int;
    LwtSeg6AdjustSrh = 75, "bpf_lwt_seg6_adjust_srh", 3, Int;
    LwtSeg6Action = 76, "bpf_lwt_seg6_action", 4, Int;
    RcRepeat = 77, "bpf_rc_repeat", 1, Int;
    RcKeydown = 78, "bpf_rc_keydown", 4, Int;
    SkbCgroupId = 79, "bpf_skb_cgroup_id", 1, Int;
    GetCurrentCgroupId = 80, "bpf_get_current_cgroup_id", 0, Int;
    GetLocalStorage = 81, "bpf_get_local_storage", 2, Ptr;
    SkSelectReuseport = 82, "bpf_sk_select_reuseport", 4, Int;
    SkbAncestorCgroupId = 83, "bpf_skb_ancestor_cgroup_id", 2, Int;
    SkLookupTcp = 84, "bpf_sk_lookup_tcp", 5, Ptr;
    SkLookupUdp = 85, "bpf_sk_lookup_udp", 5, Ptr;
    SkRelease = 86, "bpf_sk_release", 1, Int;
    MapPushElem = 87, "bpf_map_push_elem", 3, Int;
    MapPopElem = 88, "bpf_map_pop_elem", 2, Int;
    MapPeekElem = 89, "bpf_map_peek_elem", 2, Int;
    MsgPushData = 90, "bpf_msg_push_data", 4, Int;
    MsgPopData = 91, "bpf_msg_pop_data", 4, Int;
    RcPointerRel = 92, "bpf_rc_pointer_rel", 3, Int;
    SpinLock = 93, "bpf_spin_lock", 1, Int;
    SpinUnlock = 94, "bpf_spin_unlock", 1, Int;
    SkFullsock = 95, "bpf_sk_fullsock", 1, Ptr;
    TcpSock = 96, "bpf_tcp_sock", 1, Ptr;
    SkbEcnSetCe = 97, "bpf_skb_ecn_set_ce", 1, Int;
    GetListenerSock = 98, "bpf_get_listener_sock", 1, Ptr;
    SkcLookupTcp = 99, "bpf_skc_lookup_tcp", 5, Ptr;
    TcpCheckSyncookie = 100, "bpf_tcp_check_syncookie", 5, Int;
    SysctlGetName = 101, "bpf_sysctl_get_name", 4, Int;
    SysctlGetCurrentValue = 102, "bpf_sysctl_get_current_value", 3, Int;
    SysctlGetNewValue = 103, "bpf_sysctl_get_new_value", 3, Int;
    SysctlSetNewValue = 104, "bpf_sysctl_set_new_value", 3, Int;
    Strtol = 105, "bpf_strtol", 4, Int;
    Strtoul = 106, "bpf_strtoul", 4, Int;
    SkStorageGet = 107, "bpf_sk_storage_get", 4, Ptr;
    SkStorageDelete = 108, "bpf_sk_storage_delete", 2, Int;
    SendSignal = 109, "bpf_send_signal", 1, Int;
    TcpGenSyncookie = 110, "bpf_tcp_gen_syncookie", 5, Int;
    SkbOutput = 111, "bpf_skb_output", 5, Int;
    ProbeReadUser = 112, "bpf_probe_read_user", 3, Int;
    ProbeReadKernel = 113, "bpf_probe_read_kernel", 3, Int;
    ProbeReadUserStr = 114, "bpf_probe_read_user_str", 3, Int;
    ProbeReadKernelStr = 115, "bpf_probe_read_kernel_str", 3, Int;
    TcpSendAck = 116, "bpf_tcp_send_ack", 2, Int;
    SendSignalThread = 117, "bpf_send_signal_thread", 1, Int;
    Jiffies64 = 118, "bpf_jiffies64", 0, Int;
    ReadBranchRecords = 119, "bpf_read_branch_records", 4, Int;
    GetNsCurrentPidTgid = 120, "bpf_get_ns_current_pid_tgid", 4, Int;
    XdpOutput = 121, "bpf_xdp_output", 5, Int;
    GetNetnsCookie = 122, "bpf_get_netns_cookie", 1, Int;
    GetCurrentAncestorCgroupId = 123, "bpf_get_current_ancestor_cgroup_id", 1, Int;
    SkAssign = 124, "bpf_sk_assign", 3, Int;
    KtimeGetBootNs = 125, "bpf_ktime_get_boot_ns", 0, Int;
    SeqPrintf = 126, "bpf_seq_printf", 5, Int;
    SeqWrite = 127, "bpf_seq_write", 3, Int;
    SkCgroupId = 128, "bpf_sk_cgroup_id", 1, Int;
    SkAncestorCgroupId = 129, "bpf_sk_ancestor_cgroup_id", 2, Int;
    RingbufOutput = 130, "bpf_ringbuf_output", 4, Int;
    RingbufReserve = 131, "bpf_ringbuf_reserve", 3, Ptr;
    RingbufSubmit = 132, "bpf_ringbuf_submit", 2, Void;
    RingbufDiscard = 133, "bpf_ringbuf_discard", 2, Void;
    RingbufQuery = 134, "bpf_ringbuf_query", 2, Int;
    CsumLevel = 135, "bpf_csum_level", 2, Int;
    SkcToTcp6Sock = 136, "bpf_skc_to_tcp6_sock", 1, Ptr;
    SkcToTcpSock = 137, "bpf_skc_to_tcp_sock", 1, Ptr;
    SkcToTcpTimewaitSock = 138, "bpf_skc_to_tcp_timewait_sock", 1, Ptr;
    SkcToTcpRequestSock = 139, "bpf_skc_to_tcp_request_sock", 1, Ptr;
    SkcToUdp6Sock = 140, "bpf_skc_to_udp6_sock", 1, Ptr;
    GetTaskStack = 141, "bpf_get_task_stack", 4, Int;
    LoadHdrOpt = 142, "bpf_load_hdr_opt", 4, Int;
    StoreHdrOpt = 143, "bpf_store_hdr_opt", 4, Int;
    ReserveHdrOpt = 144, "bpf_reserve_hdr_opt", 3, Int;
    InodeStorageGet = 145, "bpf_inode_storage_get", 4, Ptr;
    InodeStorageDelete = 146, "bpf_inode_storage_delete", 2, Int;
    DPath = 147, "bpf_d_path", 3, Int;
    CopyFromUser = 148, "bpf_copy_from_user", 3, Int;
    SnprintfBtf = 149, "bpf_snprintf_btf", 5, Int;
    SeqPrintfBtf = 150, "bpf_seq_printf_btf", 4, Int;
    SkbCgroupClassid = 151, "bpf_skb_cgroup_classid", 1, Int;
    RedirectNeigh = 152, "bpf_redirect_neigh", 4, Int;
    PerCpuPtr = 153, "bpf_per_cpu_ptr", 2, Ptr;
    ThisCpuPtr = 154, "bpf_this_cpu_ptr", 1, Ptr;
    RedirectPeer = 155, "bpf_redirect_peer", 2, Int;
    TaskStorageGet = 156, "bpf_task_storage_get", 4, Ptr;
    TaskStorageDelete = 157, "bpf_task_storage_delete", 2, Int;
    GetCurrentTaskBtf = 158, "bpf_get_current_task_btf", 0, Ptr;
    BprmOptsSet = 159, "bpf_bprm_opts_set", 2, Int;
    KtimeGetCoarseNs = 160, "bpf_ktime_get_coarse_ns", 0, Int;
    ImaInodeHash = 161, "bpf_ima_inode_hash", 3, Int;
    SockFromFile = 162, "bpf_sock_from_file", 1, Ptr;
    CheckMtu = 163, "bpf_check_mtu", 5, Int;
    ForEachMapElem = 164, "bpf_for_each_map_elem", 4, Int;
    Snprintf = 165, "bpf_snprintf", 5, Int;
    SysBpf = 166, "bpf_sys_bpf", 3, Int;
    BtfFindByNameKind = 167, "bpf_btf_find_by_name_kind", 4, Int;
    SysClose = 168, "bpf_sys_close", 1, Int;
    TimerInit = 169, "bpf_timer_init", 3, Int;
    TimerSetCallback = 170, "bpf_timer_set_callback", 2, Int;
    TimerStart = 171, "bpf_timer_start", 3, Int;
    TimerCancel = 172, "bpf_timer_cancel", 1, Int;
    GetFuncIp = 173, "bpf_get_func_ip", 1, Int;
    GetAttachCookie = 174, "bpf_get_attach_cookie", 1, Int;
    TaskPtRegs = 175, "bpf_task_pt_regs", 1, Int;
    GetBranchSnapshot = 176, "bpf_get_branch_snapshot", 3, Int;
    TraceVprintk = 177, "bpf_trace_vprintk", 4, Int;
    SkcToUnixSock = 178, "bpf_skc_to_unix_sock", 1, Ptr;
    KallsymsLookupName = 179, "bpf_kallsyms_lookup_name", 4, Int;
    FindVma = 180, "bpf_find_vma", 5, Int;
    Loop = 181, "bpf_loop", 4, Int;
    Strncmp = 182, "bpf_strncmp", 3, Int;
    GetFuncArg = 183, "bpf_get_func_arg", 3, Int;
    GetFuncRet = 184, "bpf_get_func_ret", 2, Int;
    GetFuncArgCnt = 185, "bpf_get_func_arg_cnt", 1, Int;
    GetRetval = 186, "bpf_get_retval", 0, Int;
    SetRetval = 187, "bpf_set_retval", 1, Int;
    XdpGetBuffLen = 188, "bpf_xdp_get_buff_len", 1, Int;
    XdpLoadBytes = 189, "bpf_xdp_load_bytes", 4, Int;
    XdpStoreBytes = 190, "bpf_xdp_store_bytes", 4, Int;
    CopyFromUserTask = 191, "bpf_copy_from_user_task", 5, Int;
    SkbSetTstamp = 192, "bpf_skb_set_tstamp", 3, Int;
    ImaFileHash = 193, "bpf_ima_file_hash", 3, Int;
    KptrXchg = 194, "bpf_kptr_xchg", 2, Ptr;
    MapLookupPercpuElem = 195, "bpf_map_lookup_percpu_elem", 3, Ptr;
    SkcToMptcpSock = 196, "bpf_skc_to_mptcp_sock", 1, Ptr;
    DynptrFromMem = 197, "bpf_dynptr_from_mem", 4, Int;
    RingbufReserveDynptr = 198, "bpf_ringbuf_reserve_dynptr", 4, Int;
    RingbufSubmitDynptr = 199, "bpf_ringbuf_submit_dynptr", 2, Void;
    RingbufDiscardDynptr = 200, "bpf_ringbuf_discard_dynptr", 2, Void;
    DynptrRead = 201, "bpf_dynptr_read", 5, Int;
    DynptrWrite = 202, "bpf_dynptr_write", 5, Int;
    DynptrData = 203, "bpf_dynptr_data", 3, Ptr;
    TcpRawGenSyncookieIpv4 = 204, "bpf_tcp_raw_gen_syncookie_ipv4", 3, Int;
    TcpRawGenSyncookieIpv6 = 205, "bpf_tcp_raw_gen_syncookie_ipv6", 3, Int;
    TcpRawCheckSyncookieIpv4 = 206, "bpf_tcp_raw_check_syncookie_ipv4", 2, Int;
    TcpRawCheckSyncookieIpv6 = 207, "bpf_tcp_raw_check_syncookie_ipv6", 2, Int;
    KtimeGetTaiNs = 208, "bpf_ktime_get_tai_ns", 0, Int;
    UserRingbufDrain = 209, "bpf_user_ringbuf_drain", 4, Int;
    CgrpStorageGet = 210, "bpf_cgrp_storage_get", 4, Ptr;
    CgrpStorageDelete = 211, "bpf_cgrp_storage_delete", 2, Int;
}

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

/// The helper with this name (`bpf_...`).
pub fn by_name(name: &str) -> Option<&'static HelperInfo> {
    TABLE.iter().find(|h| h.name == name)
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
            assert_eq!(by_name(h.name), Some(h));
        }
        assert_eq!(TABLE.len(), 211);
        assert_eq!((by_id(0), by_id(212)), (None, None));
        assert_eq!(Helper::RingbufOutput.id(), 130);
        assert_eq!(Helper::ForEachMapElem.info().args, 4);
    }
}
