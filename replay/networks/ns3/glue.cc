// Packets of a replay, simulated by ns-3. Compiled by cppyy when a run first asks for it (library.py beside this file).
//
// A Simulation takes transfers, runs to the first tick at which some of them end, and says which. Python calls it once
// per batch and tick; nothing here calls Python. Time is ps inside, ns in the replay.
//
// Tcp: hosts and switches of ns-3 (its Internet stack over point-to-point devices), with the replay's routes.
// Lossless: ports with back pressure, of our own, on ns-3's event queue.

#include "ns3/arp-l3-protocol.h"
#include "ns3/icmpv4-l4-protocol.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv4-route.h"
#include "ns3/ipv4-routing-protocol.h"
#include "ns3/net-device-queue-interface.h"
#include "ns3/node.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/queue-size.h"
#include "ns3/red-queue-disc.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/tcp-cubic.h"
#include "ns3/tcp-dctcp.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-socket-base.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/traffic-control-layer.h"
#include "ns3/boolean.h"
#include "ns3/data-rate.h"
#include "ns3/double.h"
#include "ns3/drop-tail-queue.h"
#include "ns3/enum.h"
#include "ns3/inet-socket-address.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace chakra_packets
{
using namespace ns3;

constexpr int64_t PS = 1000; // of a ns
// what `Simulation::Advance` answers
constexpr int REACHED = 0, ENDED = 1, PAUSED = 2, IDLE = 3;
constexpr uint32_t FIRST_HOST = 0x0a000001;   // 10.0.0.1
constexpr uint32_t FIRST_OTHER = 0x0b000001;  // interfaces that nobody sends to
constexpr uint16_t PORT = 1;
constexpr uint16_t FIRST_PORT = 1024, LAST_PORT = 65535;
constexpr uint32_t PIECE = 1 << 24;           // bytes that a socket is given at once
constexpr int64_t DELAYED_ACK_PS = 1000000000; // 1 ms: what an odd last segment waits for its acknowledgement

// What a network is made of, and how its packets go; sizes are bytes.
struct Setup
{
    uint32_t npus = 0, vertices = 0;
    bool dctcp = false, red = false;
    uint32_t mtu = 0, segment = 0, buffer = 0, threshold = 0, initialSegments = 0, largestWindow = 0, seed = 1;
    int64_t leastTimeoutPs = 0;
    std::vector<uint32_t> src, dst;      // of each link, one direction
    std::vector<uint64_t> bitsPerSecond;
    std::vector<int64_t> latencyPs;

    void AddLink(uint32_t a, uint32_t b, uint64_t bps, int64_t ps)
    {
        src.push_back(a);
        dst.push_back(b);
        bitsPerSecond.push_back(bps);
        latencyPs.push_back(ps);
    }
};

struct LinkCount
{
    uint64_t bytes = 0, packets = 0, dropped = 0, marked = 0;
    int64_t busyPs = 0, queuedPs = 0;
};

// How long links are busy in each of a few intervals of the replay's clock, which are 2 to the power of `Shift()` ns and
// become longer with the run.
class BusyOverTime
{
  public:
    int64_t aheadNs = 0; // the replay's clock less the simulation's

    void Keep(std::size_t links, int64_t intervals)
    {
        m_n = intervals;
        m_busyPs.assign(links * std::size_t(intervals), 0);
    }

    void Add(std::size_t link, int64_t startPs, int64_t ps)
    {
        if (m_n == 0)
        {
            return;
        }
        const int64_t startNs = startPs / PS + aheadNs;
        while ((startNs + ps / PS + 1) >> m_shift >= m_n)
        {
            Widen();
        }
        int64_t ns = startNs, behind = startPs % PS;
        while (ps > 0)
        {
            const int64_t bin = ns >> m_shift;
            const int64_t room = (((bin + 1) << m_shift) - ns) * PS - behind;
            const int64_t part = std::min(ps, room);
            m_busyPs[link * std::size_t(m_n) + std::size_t(bin)] += part;
            ps -= part;
            ns = (bin + 1) << m_shift;
            behind = 0;
        }
    }

    int64_t Shift() const
    {
        return m_shift;
    }

    // ps, link after link
    void Read(int64_t* out) const
    {
        std::copy(m_busyPs.begin(), m_busyPs.end(), out);
    }

  private:
    void Widen()
    {
        ++m_shift;
        for (std::size_t row = 0; row < m_busyPs.size(); row += std::size_t(m_n))
        {
            for (int64_t k = 0; k < m_n; ++k)
            {
                const int64_t part = m_busyPs[row + k];
                m_busyPs[row + k] = 0;
                m_busyPs[row + k / 2] += part;
            }
        }
    }

    int64_t m_n = 0, m_shift = 0;
    std::vector<int64_t> m_busyPs;
};

// Clock, ends of transfers, and pauses, whatever carries the packets.
class Simulation
{
  public:
    explicit Simulation(const Setup& setup)
        : m_setup(setup),
          m_counts(setup.src.size())
    {
        RngSeedManager::SetSeed(setup.seed);
        RngSeedManager::SetRun(1);
        RngSeedManager::ResetNextStreamIndex();
    }

    virtual ~Simulation() = default;

    // The links of the way from one NPU to another.
    virtual void AddRoute(uint32_t src, uint32_t dst, const int64_t* links, int64_t n) = 0;

    void Submit(int64_t n, const int64_t* src, const int64_t* dst, const int64_t* bytes, const int64_t* startNs)
    {
        for (int64_t i = 0; i < n; ++i)
        {
            const int64_t number = m_submitted++;
            const int64_t delay = std::max<int64_t>(startNs[i] * PS - Simulator::Now().GetTimeStep(), 0);
            Simulator::Schedule(TimeStep(delay),
                                &Simulation::Begin,
                                this,
                                number,
                                uint32_t(src[i]),
                                uint32_t(dst[i]),
                                std::max<int64_t>(bytes[i], 1));
        }
    }

    // Runs until something ends, `untilNs` is reached (negative: without end) or so many packets have come to their NPU.
    int Advance(int64_t untilNs, int64_t packets)
    {
        m_left = packets;
        m_paused = m_reached = false;
        if (untilNs >= 0)
        {
            const int64_t delay = std::max<int64_t>(untilNs * PS - Simulator::Now().GetTimeStep(), 0);
            m_stop = Simulator::Schedule(TimeStep(delay), &Simulation::Reach, this);
        }
        Simulator::Run();
        if (!m_reached)
        {
            m_stop.Cancel();
        }
        if (!m_ended.empty())
        {
            return ENDED;
        }
        return m_reached ? REACHED : m_paused ? PAUSED : IDLE;
    }

    // Numbers of what has ended, and the tick (ns) at which; the caller gives room for `Count()`.
    int64_t Count() const
    {
        return int64_t(m_ended.size());
    }

    int64_t Take(int64_t* numbers)
    {
        std::sort(m_ended.begin(), m_ended.end());
        std::copy(m_ended.begin(), m_ended.end(), numbers);
        m_ended.clear();
        return m_endNs;
    }

    int64_t NowNs() const
    {
        return Simulator::Now().GetTimeStep() / PS;
    }

    // bytes, packets, dropped, marked, busy ns, queued ns of each link
    void Counts(int64_t* out) const
    {
        for (const auto& count : m_counts)
        {
            *out++ = int64_t(count.bytes);
            *out++ = int64_t(count.packets);
            *out++ = int64_t(count.dropped);
            *out++ = int64_t(count.marked);
            *out++ = count.busyPs / PS;
            *out++ = count.queuedPs / PS;
        }
    }

    // What links do over time, in so many intervals.
    void KeepUse(int64_t intervals)
    {
        m_use.Keep(m_counts.size(), intervals);
    }

    // The replay's clock less the simulation's, from now on.
    void SetAhead(int64_t ns)
    {
        m_use.aheadNs = ns;
    }

    int64_t UseShift() const
    {
        return m_use.Shift();
    }

    void Use(int64_t* out) const
    {
        m_use.Read(out);
    }

    uint64_t Events() const
    {
        return Simulator::GetEventCount();
    }

    virtual void Close()
    {
        Simulator::Destroy();
    }

  protected:
    virtual void Begin(int64_t number, uint32_t src, uint32_t dst, int64_t bytes) = 0;

    // A transfer has ended now: its tick is the next whole ns, and whatever ends up to then ends with it.
    void End(int64_t number)
    {
        if (m_ended.empty())
        {
            const int64_t now = Simulator::Now().GetTimeStep();
            m_endNs = (now + PS - 1) / PS;
            Simulator::Schedule(TimeStep(m_endNs * PS - now), &Simulation::Stop, this);
        }
        m_ended.push_back(number);
    }

    // A packet has come to its NPU.
    void Came()
    {
        if (--m_left == 0 && m_ended.empty())
        {
            m_paused = true;
            Simulator::Stop();
        }
    }

    const Setup m_setup;
    std::vector<LinkCount> m_counts;
    BusyOverTime m_use;

  private:
    void Reach()
    {
        m_reached = true;
        Simulator::Stop();
    }

    void Stop()
    {
        Simulator::Stop();
    }

    int64_t m_submitted = 0, m_left = 0, m_endNs = 0;
    bool m_paused = false, m_reached = false;
    EventId m_stop;
    std::vector<int64_t> m_ended;
};

// A link whose directions have a latency each, and count what they carry.
class CountedChannel : public PointToPointChannel
{
  public:
    int64_t latencyPs[2] = {0, 0};
    LinkCount* counts[2] = {nullptr, nullptr};
    std::size_t links[2] = {0, 0};
    BusyOverTime* use = nullptr;

    bool TransmitStart(Ptr<const Packet> packet, Ptr<PointToPointNetDevice> from, Time busy) override
    {
        const uint32_t way = from == GetSource(0) ? 0 : 1;
        Ptr<PointToPointNetDevice> to = GetDestination(way);
        if (counts[way] != nullptr)
        {
            counts[way]->bytes += packet->GetSize();
            counts[way]->packets += 1;
            counts[way]->busyPs += busy.GetTimeStep();
            use->Add(links[way], Simulator::Now().GetTimeStep(), busy.GetTimeStep());
        }
        Simulator::ScheduleWithContext(to->GetNode()->GetId(),
                                       busy + TimeStep(latencyPs[way]),
                                       &PointToPointNetDevice::Receive,
                                       to,
                                       packet->Copy());
        return true;
    }
};

// The replay's routes: by sending and receiving NPU at every vertex.
class PairRouting : public Ipv4RoutingProtocol
{
  public:
    uint32_t vertex = 0, npus = 0;
    Ptr<Ipv4> ipv4;
    std::unordered_map<uint64_t, Ptr<Ipv4Route>> ways;

    void Add(uint32_t src, uint32_t dst, Ptr<NetDevice> device)
    {
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetSource(Ipv4Address(FIRST_HOST + src));
        route->SetDestination(Ipv4Address(FIRST_HOST + dst));
        route->SetGateway(Ipv4Address(FIRST_HOST + dst));
        route->SetOutputDevice(device);
        ways[Key(src, dst)] = route;
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno& error) override
    {
        const auto found = ways.find(Key(vertex, header.GetDestination().Get() - FIRST_HOST));
        error = found == ways.end() ? Socket::ERROR_NOROUTETOHOST : Socket::ERROR_NOTERROR;
        return found == ways.end() ? nullptr : found->second;
    }

    bool RouteInput(Ptr<const Packet> packet,
                    const Ipv4Header& header,
                    Ptr<const NetDevice> device,
                    const UnicastForwardCallback& forward,
                    const MulticastForwardCallback&,
                    const LocalDeliverCallback& deliver,
                    const ErrorCallback& fail) override
    {
        const uint32_t src = header.GetSource().Get() - FIRST_HOST, dst = header.GetDestination().Get() - FIRST_HOST;
        if (dst == vertex)
        {
            deliver(packet, header, uint32_t(ipv4->GetInterfaceForDevice(device)));
            return true;
        }
        const auto found = ways.find(Key(src, dst));
        if (found == ways.end())
        {
            fail(packet, header, Socket::ERROR_NOROUTETOHOST);
            return false;
        }
        forward(found->second, packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> of) override
    {
        ipv4 = of;
    }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  protected:
    void DoDispose() override
    {
        ways.clear();
        ipv4 = nullptr;
        Ipv4RoutingProtocol::DoDispose();
    }

  private:
    static uint64_t Key(uint32_t src, uint32_t dst)
    {
        return uint64_t(src) << 32 | dst;
    }
};

class TcpSimulation : public Simulation
{
  public:
    explicit TcpSimulation(const Setup& setup)
        : Simulation(setup),
          m_devices(setup.src.size()),
          m_nextPort(setup.npus, FIRST_PORT)
    {
        for (uint32_t v = 0; v < setup.vertices; ++v)
        {
            AddVertex(v);
        }
        std::unordered_map<uint64_t, uint32_t> number;
        for (uint32_t k = 0; k < setup.src.size(); ++k)
        {
            number[uint64_t(setup.src[k]) << 32 | setup.dst[k]] = k;
        }
        std::vector<bool> done(setup.src.size(), false);
        for (uint32_t k = 0; k < setup.src.size(); ++k)
        {
            if (done[k])
            {
                continue;
            }
            const auto back = number.find(uint64_t(setup.dst[k]) << 32 | setup.src[k]);
            const int64_t other = back == number.end() ? -1 : int64_t(back->second);
            AddChannel(k, other);
            if (other >= 0)
            {
                done[other] = true;
            }
        }
        for (uint32_t npu = 0; npu < setup.npus; ++npu)
        {
            Ptr<Socket> listener = MakeSocket(npu);
            listener->Bind(InetSocketAddress(Ipv4Address(FIRST_HOST + npu), PORT));
            listener->Listen();
            listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                        MakeCallback(&TcpSimulation::Accept, this));
            m_listeners.push_back(listener);
        }
    }

    void AddRoute(uint32_t src, uint32_t dst, const int64_t* links, int64_t n) override
    {
        for (int64_t i = 0; i < n; ++i)
        {
            m_routing[m_setup.src[links[i]]]->Add(src, dst, m_devices[links[i]]);
        }
    }

    void Close() override
    {
        for (auto& connection : m_connections)
        {
            Silence(connection->sender);
            Silence(connection->receiver);
        }
        for (auto& listener : m_listeners)
        {
            listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                        MakeNullCallback<void, Ptr<Socket>, const Address&>());
        }
        Simulation::Close();
        m_connections.clear();
        m_listeners.clear();
        m_byPort.clear();
        m_idle.clear();
        m_devices.clear();
        m_routing.clear();
        m_nodes.clear();
    }

  protected:
    void Begin(int64_t number, uint32_t src, uint32_t dst, int64_t bytes) override
    {
        auto& idle = m_idle[uint64_t(src) << 32 | dst];
        Connection* connection;
        if (idle.empty())
        {
            m_connections.push_back(std::make_unique<Connection>());
            connection = m_connections.back().get();
            connection->src = src;
            connection->dst = dst;
            connection->number = number;
            connection->unsent = connection->missing = bytes;
            Open(connection);
            return;
        }
        connection = idle.front();
        idle.pop_front();
        connection->number = number;
        connection->unsent = connection->missing = bytes;
        Fill(connection);
    }

  private:
    // One way of a pair of NPUs. It carries one transfer at a time, and stays open for later ones.
    struct Connection
    {
        uint32_t src = 0, dst = 0;
        int64_t number = 0, unsent = 0, missing = 0;
        bool open = false;
        Ptr<Socket> sender, receiver;
    };

    void AddVertex(uint32_t v)
    {
        Ptr<Node> node = CreateObject<Node>();
        Ptr<ArpL3Protocol> arp = CreateObject<ArpL3Protocol>();
        Ptr<Ipv4L3Protocol> ip = CreateObject<Ipv4L3Protocol>();
        Ptr<TrafficControlLayer> control = CreateObject<TrafficControlLayer>();
        node->AggregateObject(arp);
        node->AggregateObject(ip);
        node->AggregateObject(CreateObject<Icmpv4L4Protocol>());
        node->AggregateObject(control);
        arp->SetTrafficControl(control);
        Ptr<TcpL4Protocol> tcp = CreateObject<TcpL4Protocol>();
        tcp->SetAttribute("SocketType",
                          TypeIdValue(m_setup.dctcp ? TcpDctcp::GetTypeId() : TcpCubic::GetTypeId()));
        node->AggregateObject(tcp);
        Ptr<PairRouting> routing = CreateObject<PairRouting>();
        routing->vertex = v;
        routing->npus = m_setup.npus;
        ip->SetRoutingProtocol(routing);
        m_nodes.push_back(node);
        m_routing.push_back(routing);
    }

    // A link in both directions; `back` is -1 where only one is there, and then nobody is routed over the other.
    void AddChannel(uint32_t there, int64_t back)
    {
        Ptr<CountedChannel> channel = CreateObject<CountedChannel>();
        const uint32_t ends[2] = {m_setup.src[there], m_setup.dst[there]};
        const int64_t links[2] = {int64_t(there), back};
        for (int way = 0; way < 2; ++way)
        {
            const int64_t link = links[way] >= 0 ? links[way] : int64_t(there);
            channel->latencyPs[way] = m_setup.latencyPs[link];
            channel->counts[way] = links[way] >= 0 ? &m_counts[link] : nullptr;
            channel->links[way] = std::size_t(link);
            channel->use = &m_use;
            Ptr<PointToPointNetDevice> device = AddDevice(ends[way], channel, link);
            if (links[way] >= 0)
            {
                m_devices[link] = device;
            }
        }
    }

    Ptr<PointToPointNetDevice> AddDevice(uint32_t vertex, Ptr<CountedChannel> channel, int64_t link)
    {
        Ptr<Node> node = m_nodes[vertex];
        Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
        device->SetAddress(Mac48Address::Allocate());
        device->SetDataRate(DataRate(m_setup.bitsPerSecond[link]));
        device->SetMtu(uint16_t(m_setup.mtu));
        node->AddDevice(device);
        Ptr<DropTailQueue<Packet>> queue = CreateObject<DropTailQueue<Packet>>();
        // with a queue discipline above it, the device holds only what it sends next
        queue->SetMaxSize(m_setup.red ? QueueSize(QueueSizeUnit::PACKETS, 1)
                                      : QueueSize(QueueSizeUnit::BYTES, m_setup.buffer));
        device->SetQueue(queue);
        device->Attach(channel);
        LinkCount* count = &m_counts[link];
        Ptr<Ipv4L3Protocol> ip = node->GetObject<Ipv4L3Protocol>();
        if (m_setup.red)
        {
            Ptr<NetDeviceQueueInterface> interface = CreateObject<NetDeviceQueueInterface>();
            interface->GetTxQueue(0)->ConnectQueueTraces(queue);
            device->AggregateObject(interface);
        }
        const uint32_t number = ip->AddInterface(device);
        if (m_setup.red)
        {
            Ptr<RedQueueDisc> red = MakeRed(m_setup.bitsPerSecond[link]);
            node->GetObject<TrafficControlLayer>()->SetRootQueueDiscOnDevice(device, red);
            red->TraceConnectWithoutContext("Drop", MakeBoundCallback(&TcpSimulation::DroppedItem, count));
            red->TraceConnectWithoutContext("Mark", MakeBoundCallback(&TcpSimulation::MarkedItem, count));
        }
        else
        {
            queue->TraceConnectWithoutContext("Drop", MakeBoundCallback(&TcpSimulation::DroppedPacket, count));
        }
        const bool first = vertex < m_setup.npus && number == 1;
        const uint32_t address = first ? FIRST_HOST + vertex : FIRST_OTHER + m_others++;
        ip->AddAddress(number, Ipv4InterfaceAddress(Ipv4Address(address), Ipv4Mask(0xffffffff)));
        ip->SetMetric(number, 1);
        ip->SetUp(number);
        return device;
    }

    // Marks from one threshold on where there is one, by the queue as it is; else drops early, by its mean.
    Ptr<RedQueueDisc> MakeRed(uint64_t bitsPerSecond)
    {
        Ptr<RedQueueDisc> red = CreateObject<RedQueueDisc>();
        red->SetAttribute("MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, m_setup.buffer)));
        red->SetAttribute("MeanPktSize", UintegerValue(m_setup.mtu));
        red->SetAttribute("LinkBandwidth", DataRateValue(DataRate(bitsPerSecond)));
        if (m_setup.threshold > 0)
        {
            red->SetAttribute("UseEcn", BooleanValue(true));
            red->SetAttribute("UseHardDrop", BooleanValue(false));
            red->SetAttribute("MinTh", DoubleValue(m_setup.threshold));
            red->SetAttribute("MaxTh", DoubleValue(m_setup.threshold));
            red->SetAttribute("QW", DoubleValue(1));
        }
        else
        {
            red->SetAttribute("MinTh", DoubleValue(m_setup.buffer / 4));
            red->SetAttribute("MaxTh", DoubleValue(m_setup.buffer / 4 * 3));
        }
        return red;
    }

    Ptr<Socket> MakeSocket(uint32_t npu)
    {
        Ptr<Socket> socket = m_nodes[npu]->GetObject<TcpL4Protocol>()->CreateSocket();
        socket->SetAttribute("SegmentSize", UintegerValue(m_setup.segment));
        socket->SetAttribute("InitialCwnd", UintegerValue(m_setup.initialSegments));
        socket->SetAttribute("SndBufSize", UintegerValue(m_setup.largestWindow));
        socket->SetAttribute("RcvBufSize", UintegerValue(m_setup.largestWindow));
        socket->SetAttribute("DelAckTimeout", TimeValue(TimeStep(DELAYED_ACK_PS)));
        socket->SetAttribute("MinRto", TimeValue(TimeStep(m_setup.leastTimeoutPs)));
        socket->SetAttribute("DataRetries", UintegerValue(1000000));
        socket->SetAttribute("ConnCount", UintegerValue(1000000));
        if (m_setup.threshold > 0)
        {
            socket->SetAttribute("UseEcn", EnumValue(TcpSocketState::On));
        }
        socket->SetIpTtl(255);
        return socket;
    }

    void Open(Connection* connection)
    {
        const uint32_t src = connection->src;
        connection->sender = MakeSocket(src);
        const uint16_t port = m_nextPort[src]++;
        m_byPort[uint64_t(src) << 32 | port] = connection;
        connection->sender->Bind(InetSocketAddress(Ipv4Address(FIRST_HOST + src), port));
        connection->sender->SetConnectCallback(
            MakeCallback(&TcpSimulation::Opened, this).Bind(connection),
            MakeNullCallback<void, Ptr<Socket>>());
        connection->sender->SetSendCallback(MakeCallback(&TcpSimulation::Room, this).Bind(connection));
        connection->sender->Connect(InetSocketAddress(Ipv4Address(FIRST_HOST + connection->dst), PORT));
    }

    void Opened(Connection* connection, Ptr<Socket>)
    {
        connection->open = true;
        Fill(connection);
    }

    void Room(Connection* connection, Ptr<Socket>, uint32_t)
    {
        if (connection->open && connection->unsent > 0)
        {
            Fill(connection);
        }
    }

    void Fill(Connection* connection)
    {
        while (connection->unsent > 0)
        {
            const uint32_t room = connection->sender->GetTxAvailable();
            int64_t size = std::min<int64_t>({connection->unsent, int64_t(room), int64_t(PIECE)});
            if (size < connection->unsent)
            {
                size -= size % m_setup.segment; // whole segments, so that only a transfer's last one is short
            }
            if (size == 0)
            {
                return;
            }
            connection->unsent -= size;
            if (connection->sender->Send(Create<Packet>(uint32_t(size))) < 0)
            {
                connection->unsent += size;
                return;
            }
        }
    }

    void Accept(Ptr<Socket> socket, const Address& from)
    {
        const InetSocketAddress peer = InetSocketAddress::ConvertFrom(from);
        Connection* connection = m_byPort[uint64_t(peer.GetIpv4().Get() - FIRST_HOST) << 32 | peer.GetPort()];
        connection->receiver = socket;
        socket->SetRecvCallback(MakeCallback(&TcpSimulation::Receive, this).Bind(connection));
    }

    void Receive(Connection* connection, Ptr<Socket> socket)
    {
        while (Ptr<Packet> packet = socket->Recv())
        {
            const uint32_t size = packet->GetSize();
            if (size == 0)
            {
                break;
            }
            connection->missing -= size;
            Came();
        }
        if (connection->missing == 0)
        {
            connection->missing = -1;
            m_idle[uint64_t(connection->src) << 32 | connection->dst].push_back(connection);
            End(connection->number);
        }
    }

    static void DroppedItem(LinkCount* count, Ptr<const QueueDiscItem>)
    {
        count->dropped += 1;
    }

    static void MarkedItem(LinkCount* count, Ptr<const QueueDiscItem>, const char*)
    {
        count->marked += 1;
    }

    static void DroppedPacket(LinkCount* count, Ptr<const Packet>)
    {
        count->dropped += 1;
    }

    static void Silence(Ptr<Socket> socket)
    {
        if (socket)
        {
            socket->SetConnectCallback(MakeNullCallback<void, Ptr<Socket>>(), MakeNullCallback<void, Ptr<Socket>>());
            socket->SetSendCallback(MakeNullCallback<void, Ptr<Socket>, uint32_t>());
            socket->SetRecvCallback(MakeNullCallback<void, Ptr<Socket>>());
        }
    }

    std::vector<Ptr<Node>> m_nodes;
    std::vector<Ptr<PairRouting>> m_routing;
    std::vector<Ptr<PointToPointNetDevice>> m_devices;
    std::vector<Ptr<Socket>> m_listeners;
    std::vector<std::unique_ptr<Connection>> m_connections;
    std::unordered_map<uint64_t, Connection*> m_byPort;
    std::unordered_map<uint64_t, std::deque<Connection*>> m_idle;
    std::vector<uint32_t> m_nextPort;
    uint32_t m_others = 0;
};

// Ports that stop the port before them instead of dropping (priority flow control with one class, IEEE 802.1Qbb).
// A vertex counts what it still holds of each link that leads to it. Above the buffer less its headroom it stops that
// link, below that less two packets it lets it go on; either takes the link's latency. Senders have no window.
class LosslessSimulation : public Simulation
{
  public:
    explicit LosslessSimulation(const Setup& setup)
        : Simulation(setup),
          m_ports(setup.src.size()),
          m_routes()
    {
        for (uint32_t k = 0; k < setup.src.size(); ++k)
        {
            Port& port = m_ports[k];
            port.psPerByte = 8e12 / double(setup.bitsPerSecond[k]);
            const double flying = 2.0 * double(setup.latencyPs[k]) / port.psPerByte;
            port.stopAbove = int64_t(setup.buffer) - int64_t(flying) - 2 * int64_t(setup.mtu + FRAME);
            port.goBelow = port.stopAbove - 2 * int64_t(setup.mtu + FRAME);
        }
    }

    // IP 20, UDP 8, base transport header 12, check sum 4, all within the MTU; Ethernet 18 around it
    static constexpr uint32_t HEADERS = 44, FRAME = 18;

    void AddRoute(uint32_t src, uint32_t dst, const int64_t* links, int64_t n) override
    {
        std::vector<uint32_t>& route = m_routes[uint64_t(src) << 32 | dst];
        route.assign(links, links + n);
    }

    // Links that are stopped.
    int64_t Stopped() const
    {
        return std::count_if(m_ports.begin(), m_ports.end(), [](const Port& port) { return port.stopped; });
    }

  protected:
    void Begin(int64_t number, uint32_t src, uint32_t dst, int64_t bytes) override
    {
        uint32_t place;
        if (m_free.empty())
        {
            place = uint32_t(m_transfers.size());
            m_transfers.emplace_back();
        }
        else
        {
            place = m_free.back();
            m_free.pop_back();
        }
        Transfer& transfer = m_transfers[place];
        transfer.number = number;
        transfer.unsent = transfer.missing = bytes;
        transfer.route = &m_routes[uint64_t(src) << 32 | dst];
        const uint32_t first = transfer.route->front();
        m_ports[first].own.push_back(place);
        Serve(first);
    }

  private:
    struct Transfer
    {
        int64_t number = 0, unsent = 0, missing = 0;
        const std::vector<uint32_t>* route = nullptr;
    };

    struct Frame
    {
        uint32_t transfer, payload, hop;
        int64_t since;
    };

    // One direction of a link: its sender's queue, and what its receiver holds of it.
    struct Port
    {
        double psPerByte = 0;
        int64_t stopAbove = 0, goBelow = 0, held = 0;
        bool busy = false, stopped = false, asked = false, ownTurn = false;
        std::deque<Frame> queue;     // on their way through
        std::deque<uint32_t> own;    // transfers of this NPU, in turn
    };

    void Serve(uint32_t k)
    {
        Port& port = m_ports[k];
        if (port.busy || port.stopped || (port.queue.empty() && port.own.empty()))
        {
            return;
        }
        Frame frame;
        const bool mine = port.queue.empty() || (port.ownTurn && !port.own.empty());
        port.ownTurn = !mine;
        if (mine)
        {
            const uint32_t place = port.own.front();
            port.own.pop_front();
            Transfer& transfer = m_transfers[place];
            const int64_t most = int64_t(m_setup.mtu) - HEADERS;
            frame = {place, uint32_t(std::min(transfer.unsent, most)), 0, Simulator::Now().GetTimeStep()};
            transfer.unsent -= frame.payload;
            if (transfer.unsent > 0)
            {
                port.own.push_back(place);
            }
        }
        else
        {
            frame = port.queue.front();
            port.queue.pop_front();
        }
        const uint32_t bytes = frame.payload + HEADERS + FRAME;
        const int64_t now = Simulator::Now().GetTimeStep();
        const int64_t busy = std::llround(bytes * port.psPerByte);
        LinkCount& count = m_counts[k];
        count.bytes += bytes;
        count.packets += 1;
        count.busyPs += busy;
        m_use.Add(k, now, busy);
        count.queuedPs += now - frame.since;
        port.busy = true;
        Simulator::Schedule(TimeStep(busy), &LosslessSimulation::Sent, this, k, frame);
        Simulator::Schedule(TimeStep(busy + m_setup.latencyPs[k]), &LosslessSimulation::Arrive, this, k, frame);
    }

    void Sent(uint32_t k, Frame frame)
    {
        m_ports[k].busy = false;
        if (frame.hop > 0)
        {
            Release((*m_transfers[frame.transfer].route)[frame.hop - 1], frame.payload + HEADERS + FRAME);
        }
        Serve(k);
    }

    void Arrive(uint32_t k, Frame frame)
    {
        Transfer& transfer = m_transfers[frame.transfer];
        if (frame.hop + 1 == transfer.route->size())
        {
            transfer.missing -= frame.payload;
            if (transfer.missing == 0)
            {
                m_free.push_back(frame.transfer);
                End(transfer.number);
            }
            Came();
            return;
        }
        const uint32_t next = (*transfer.route)[frame.hop + 1];
        m_ports[next].queue.push_back({frame.transfer, frame.payload, frame.hop + 1, Simulator::Now().GetTimeStep()});
        Port& port = m_ports[k];
        port.held += frame.payload + HEADERS + FRAME;
        if (port.held > port.stopAbove && !port.asked)
        {
            port.asked = true;
            Simulator::Schedule(TimeStep(m_setup.latencyPs[k]), &LosslessSimulation::SetStopped, this, k, true);
        }
        Serve(next);
    }

    void Release(uint32_t k, uint32_t bytes)
    {
        Port& port = m_ports[k];
        port.held -= bytes;
        if (port.asked && port.held <= port.goBelow)
        {
            port.asked = false;
            Simulator::Schedule(TimeStep(m_setup.latencyPs[k]), &LosslessSimulation::SetStopped, this, k, false);
        }
    }

    void SetStopped(uint32_t k, bool stopped)
    {
        m_ports[k].stopped = stopped;
        Serve(k);
    }

    std::vector<Port> m_ports;
    std::unordered_map<uint64_t, std::vector<uint32_t>> m_routes;
    std::vector<Transfer> m_transfers;
    std::vector<uint32_t> m_free;
};
} // namespace chakra_packets
