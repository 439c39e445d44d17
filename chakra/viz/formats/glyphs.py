"""Glyphs for PNG pictures: grey bitmaps of ASCII and Latin-1, so that no font and no library is needed.

The shapes were rasterised at 15 pixels from DejaVu Sans (Bitstream Vera and Arev licences, free to embed and
redistribute); each pixel has four bits, glyphs are 20 rows of 16 pixels, packed, compressed and written in
base 85.
"""

import base64
import zlib
from functools import cache
from typing import Final

import numpy as np

from chakra.arrays import F64

GLYPH_HEIGHT: Final = 20
GLYPH_WIDTH: Final = 16
_CHARS: Final = "".join(map(chr, range(32, 127))) + "".join(map(chr, range(161, 256))) + "…→"
_ADVANCES: Final = bytes.fromhex(
    "0506070d0a0e0c040606080d050505050a0a0a0a0a0a0a0a0a0a05050d0d0d080f0a0a0a0c09090c0b04040a080d0b0c090c"
    "0a0a090b0a0f0a090a0605060d0808090a080a09050a0a040409040f0a090a0a0608060a090c0909080a050a0d060a0a0a0a"
    "0508080f07090d000f08080d0606080a0a05080607090f0f0f080a0a0a0a0a0a0f0a09090909040404040c0b0c0c0c0c0c0d"
    "0c0b0b0b0b0909090909090909090f080909090904040404090a09090909090d090a0a0a0a090a090f0d"
)
_PACKED: Final = (
    r"c-rM$eQ;FO6~FK8XWrW+3kI}>u-lFur&_XcrndEiWa~e5v`xbF4`*tC#pz5tExOTm+G!PtwvKhwxH_F_(L$D5r?o&>N>wbFF5*W)4Bsj"
    r"hNkAfj01*-r1UB1y&pCJ5w<aMZce9V_ok@QC?z`{3^UghA_uP9QW0!eZKT7;N;j^Q>kD}s@zda%rzL*U^1uUuj8(<APBp}U8zxeU8Cjs"
    r">z8;t_=lf`u$ipBXD|6w%F!OO!-0IS&^HFPbv;)20v1h^0V`Nsl{IMx?!MAT0l4#JPAADyA=7GuToP^D;h_w%d#qTSNLKM#5TF&0PLa^"
    r"^~Me%!Z?mGcLM{Pj#Qf}>*xgL+>bwtK*PT>R1x&b|7Sc!P$=*qa>d8KAbCLA^J|u$`h(bOPVE>H0eX|3&pp$Q>5l0pRM}>Nn$@-q`ewB"
    r"@xC-Big=uIm1d~Y^D$c_rRn%=L7@qIPq3hLZyC;j0G>g2;x0-{66*jDMU{Pu{nuoB&^5syll^;+TW9N|8eq9`#8tG)%p<wBuga?h{cW8"
    r"V|iY-r|Y#tiu%E*1i1a$8{kfkmbd-cDC=dr!WUP^Naz-J@6(I7vs-cY5%!W?l6;zV6H7;JI?gV~;yz_Xb>g<2^dv@l8AhB-=a&$6QvXS"
    r"NLu@Rj{;MYSeVm%Vr;5H?2GQ+zU9lIQyPZXa=O~V`ka%=yBP$h_g#RmP%sQ6mWqWzOyq~gi*EwY4Uq%}Uj*L22@1R2R^rgqZ!28xt834"
    r"UwY$=^uMwa#{Y2rb|W)uMLX*^tv9qggQ5>B6AWqg`WJw%d4bg;!%bbbI(nx;U>v6aqOlcd%PG`?N-F530u52;m<3eva@h@L%&6*nOM#|"
    r"7xwffx!S)^a|fD|XTKxv0o4P?YTcl#X+85c}VC_tYbjuhf6Fm08EeY&`F1ITlgMKF|I)09RJtl>PQHPAOh;VlBwkXOmk59VHzsAP6v%s"
    r"Lvic){abu_?cZt@uaHoiuV)AQ7h>K#qS>SR6g=l)x?)&#6A*N7dbYA>}a4tt@zdB`?>}uZ>7gTzZDTW4o}{KaddhkP~C}q;&C(Zt(ef;"
    r"Ik^Sw%0lF~va;Yfys-OpSr^0Sfjn^|40_4wSR4WSQPvI(7pCSBBdbaNz#h5oyAmQkt*LuL0<lay(wCq11*2~Q;;U=m-r7%7qC=f6U82L"
    r"BCw`C5CzSP>cA4uYIBv?s%cHB$J3TLuUv4=<?71uTFjh_7mdrw`m+j<rs*9ub2-q_tTotz(vI-0c^$*eBnH#O+wLp$wh3c%RtlZe%Eeu"
    r"A{`(K)}m6P%u|MMo9bBD8iUF<DpL_+iD#p+o}@BwDVDp;xiG3JfUf@350YjJ+|ycc$g_WRfE<rZ)SneU?af?s(BMu6?d?jH|*?HH~(DX"
    r"uiuVT2sG8#OZONBg{m{}TK@P4<|JpXg@p<Qzg}=kZ<^0qUv?ftjNCYVa+<4lN4L?O?uy1+{1$((@U%W3%FjFx1GxSxIcS*RNC|+KxfM)"
    r"-u0r3wd3)@FQ`nI}Jsw$MU>v&st`~^_lyr<KN~W^6B=|$Ok3@6@elm5XgNTV%&Nx&trSKp6;iPzI2-Um9deK#ucM!*Ql1hb8K|a?Hg4)"
    r")!7Yq>+!#!{5hI~Bu~L1<!`ZIv^W+DEY1rQ?Lnbi=IapXxLZ>%spKDj-<6|5-f!nGp}k7_@_}}zPkPBJN}G(;DDwLmhY(xBfYTt8>OJr"
    r"-m<jLsounT)VDcV1OV`!L5uIo0KJ&<KyUyB~e;3AEYUoRGdpp3fr;^nOJQ`y!3heCA`UG}#y0-&9?rQ|Bt_}kF_Ax+DKO(<b7Am8UTfY"
    r"_X-eJV<B;v=X5j$2AhUyTDwj=8Oh-}$<#2M!hz2}sU&)d2oVr!i}^$hvbDDR-+1p2c8cLpYx^$@pvMI9H8<$2kjy*7I)3;;dbj@2pkAA"
    r"`@M{OE0deE(|lcVL<?9P6!qY`=Cw{fBz~r76^@AQ$93Gd}+PllZrq{C}vyf;!{{xL%^&>2Q2Ve5$QOG?R!h#1#B{M<xFjqWd)tO}dL={"
    r"ublAHT3d5>(E@3Jt4(j<_}81-f@-+6I{AhUk&+?rK#stk|&0VFr?Ng0jdfW7123c#(=_qiG-i$6w^flQR}|`W|)b+w&$qI_*9N(#Q5e2"
    r"=7U_lS#rh4Lm1k>LwU)l|GyY`{S3!X#$MD|rwmKmRgxzr2cC+s+DcADTZ}ca;+QtDofBhhcOE#U4e-H_H@?T&%e&3jutW&|-azFXlPmA"
    r"48Ws{76n%~rH;ak)0cH#e!R=*kg$A123dk_(U918a5UqR-PrQwp9=(V7vJLYIp7WSRsJ{O&Bfg3g-h-IP<i=7ztg?Uo*pD+BIc1Oz)w}"
    r"S-G^Aq&(d9Z*5d8>o{UvwqqtsY4+7H)f6u}{#+J2NPlM-o*G4OX%FjcXGj8B>d%BuR8ti4IbUOA@6m(G{-cyeA(&hyE6KRFL5=LO|FVP"
    r"@V?&LhfsMLEwX=N-o#ACUO_@`K)SkA}-p{Iso6kf`ZvoI?M!&5X@bJXLTx6s|s_8lJcg<OrS_xvbvPn?6qjPmvk{D_iuXFidB@wf-k4j"
    r"SBNR#mldPddIe-e^N<@oM-zSu4~@}c=pRM?`9leGlV!AN#=`XqpX+h=(@a@`s1K@?t#faXBamOnP!&t?tW~?>Qjx1DX9()g-z#SU4f^w"
    r"tVdu;1B3N`fiSBT7$TJQvYosx|NI+#n)tVwf@Pqa$2p~S<QIj2mXMUXJ15-^bk(1DNhuwR(C<6Qt-5H=Wi>|Cnd3{vycgNOhphb@8m@m"
    r"2W%`%aeX=OL_rqmJXq?laR)6=S{(d%T73HI#fBE@Pcoe9r$aRJihpWF-v^#x8)DP3i+I0IB+vkL~73^(dCailg{)u6=(Su@SY{mIFW6f"
    r"(pY;WwO>z7sLk$<W%-^F;febby&m>Fj#x4nMV0ihq!O07@uXP%#(24o{(-s!W6{tlm)K|kv5MEh0Ji0kNhyaLacDC>E<z1i30pMT?vUx"
    r"w2=<^E&r@j>-4sEB_(l_-CBSEJ)%_9#z$8m2f}F%4Dn&=ioT01183k-PE7H~&p?hAZ7}y8eqWpmen<O<!HGg9$4(r_T&oKOA~!b*0vNW"
    r"<vO9#!y}^hDMz9x33HnYfaq~5}$G-4C^<!axNvm0BI>lFRc*VY$E3tQKTPeBLSQk{?!J3C)o!gJ`Qy1eIlPSXNkK*tVdijN9cgwyC+Z~"
    r"49nh=J~401niHNByjX+d>;%wP9%mb1J;`A&N>-E>>Kc@tDyJmmsw!Nc*NY1kt0S2OjCt?hO0;h<p7n0mJ^}eZ?ZJ`#ieenO)kZN~@tr4"
    r"iCg1BJgH(a>j!!XDt7*Lf?^(+1Ekm*QQ1v`yr<0P0v>Hm}{}itPyoDB$ZlG@YfLW0?{LlhFJuUNRz1H)eyY4@PEB)5zTw2ji6$VFJ^ud"
    r"^gKaBO~;3tIZ$*j#JNm@zAhljbY-@@n2bMjQQCy(9l<gu~);j(4j6B6KEq+D!2s@&)G_hH(vALV^U@6oLIg?5<d)jquWHc;CGCdDUKl="
    r"ZS5zi!iz_Zw@`TQEiL`^Q&7(K5RdXcRUtXhEM`b(&KzF_2ED^SJ<eT9A1};8fIoyak@qbp;p<X9ug#Mp-Z0iR<!_uI6#DDKyKQWOD`ox"
    r"R*eKcJGxC&y}W^VFuovB1J*}Uz%B`CgXuzRHT>Vv|IVIdl~U-#qBsI&6gXrOxHDty%qZUJ~&^)rh@?sHR8%}SNAR0;M&ZzdSy16X*D~z"
    r"+$WnXXutB+cCjp&Io=OmvrEKHSGS%08fV!f)$^H)OISh}Iv(&P{z^#4^1N&>ub1~z700LFpkKJn-PN8(I}r{*zXq;v2K1bWTEe<gwcE7"
    r"DAefOW(cR96{IlaQ%AYTe(;M<wp3k%|P|4m8;2Z}3KTEEDT$g?W^uvri2>QVh^ukQ<Lj2)D&<`{6Ea=B|k&62K>4zshXm9p4VYuO1gKp"
    r"IuDWT&zH0;=96GF$j-+XvIQZf!tMXZl=Qyl&i%CBU`WhV>5wSe4C?8N75X^N5@2Q65en&`=XnnrdK9p&N6%Ib_Ze`UroayI)W!$Ko-{q"
    r"g#PcwXMef|pztpn-9x&s3m4wxX<O3klipE)gflzvb)u0fj1#I0eqMP-NTK64RwJuk?eFu{hmZnAdE>_^<rFdm)~yV#VQXoI&-non7KTc"
    r"kug&J8RJJEV=>L!5GQK*~jv{Y_GbA{)G=A@qUC4A#r>F`&B=PXf|N~)-$iL;o5HYErH&c78h9MFA55L6M5<ua(1#H^qGTekUs5gppR*r"
    r"fIc=Y4D>m~A*au$aD}4qZ$KaSZ-PGI-yT4}hV(fO0)5=S6@-5y3_Puv33FsU1u4_fZfNhKx)|gx<+>tcR~Z-@t>q&7(xsne3vy1_Wq+u"
    r"T0+7e-NuTx+^4I+SMqAQn?s*jOj$3xxl0La!UZUOTbL_`J-ghg`x0tu$0$>L%P<EwI<IGnieK--c*#Ay0eL|3nCTRb(nCVT6xnAusCRp"
    r"4j5q)vQ+A!iO78O%N+5pn&q3`4rH{vl5QUTYCFLk69PG;q8|FlMWs8L|i{QAfP@g)8DqovwD`;#kZ0Q9mw>2rL94ruxf30u-v`;C(pv>"
    r"AO><egnP-orNglh=`&B<xAw^xcSm_*&4G^mPRy7PMXe4xgXgEJV}usdiI8Ah)DJM6rELpxDUR!+ng{6Dp6h&trS-#(uot-Z9M&x{hML!"
    r"Mv@@!av*WPkxZF$g2Lf*`KV_7fEwAqS%JMSr}Joo9?nDefqwe!2x?7*=I}ooV^&wNwi)6j<WDk$~0jhY8vs&P0p^FI5k{FK_{WCm+j<r"
    r"DvKZE$sZ+vf7cB9fgjGEI^a)5O+xTXdr#~|4n@pH;9tYDz`v50H{$nnQbFLKV{kt3zx+<@5B-wIm-55MGc9jvpZ(Jwid<#|?MdHK9G|("
    r"?yktxIjN}#z+Kzv7(5&dz^nu;?Pk%l>ANBV*+WeOG`H8ROK0#;y6|i8%o77f-7$mBGi})&vMPdVC6|Mi*SJweDSZK^~rnr&uilXnEy-H"
    r"Y4*50urXWUun{h>4H`7cs@n6wvtUYc*Ipt$fQBVsH1ntq5Glmji{A<4JN{$I9*zNjLx(DY5C&k#R4Eo{N*N9@VJ;lwkY`c2Duq1#h>Hc"
    r"bUtZLVbh67;1QTPWyzDxDq_^sPerrat?O{$u87?P3d459Oc0aqpkLPTC1{cjhII>gJM{^vZ<C%Q^HFdVjK)3|<Wqs_nKHeLCrb@g(~H?"
    r">dwA;vbdhRUH<z34L<aKlLt7J7$%F?_aH<&;Qag+oG7g=##r*>M5PSvpi@o{!!_t_4X3&MjxyB*(1=;_2;0&9rJ5Z;_tx)CGP%75SW%U"
    r";yNa=ueJ{DGho*KS~LjvDB52;^L6|V{4c*Z<ieSP?@xYG3L?F3u6-`}{$%-ur3FKd>k3Yv+_>h$^+D`c?zpY!oBK5Si?xe}zMoz8pD#0"
    r"$7PK3E!<M36E0Q1l-1^+1+vTz7L9}B}gpn`jkblO%k$+2oZ=vrbkbfKez&~$4@^9vo$iFMbOT|JO<;(ApX>VG!yWsn$<xYE<H`-+{`W%"
    r"#x@-4#K{lt~97yqa{Wh5<V8~V!04m?Np+L|A-%l_$neLqaucO}*nA0*n0f2xYJkJX0xKZz4jej!zeas|f6IBrXyzi^y={ug6-#{U5A|5"
    r"1h"
)


@cache
def _glyphs() -> tuple[dict[str, int], F64]:
    nibbles = np.frombuffer(zlib.decompress(base64.b85decode(_PACKED)), np.uint8)
    flat = np.stack([nibbles >> 4, nibbles & 15], axis=1).reshape(len(_CHARS), GLYPH_HEIGHT, GLYPH_WIDTH)
    return {char: place for place, char in enumerate(_CHARS)}, flat / 15.0


def text_mask(text: str) -> F64:
    """Coverage (0 to 1) of a line of text, (GLYPH_HEIGHT, width); characters it lacks become escapes."""
    places, glyphs = _glyphs()
    shown = "".join(c if c in places else c.encode("unicode_escape").decode("ascii") for c in text)
    width = sum(_ADVANCES[places[c]] for c in shown) + GLYPH_WIDTH
    mask = np.zeros((GLYPH_HEIGHT, width))
    x = 0
    for char in shown:
        place = places[char]
        mask[:, x : x + GLYPH_WIDTH] = np.maximum(mask[:, x : x + GLYPH_WIDTH], glyphs[place])
        x += _ADVANCES[place]
    return mask[:, : max(x, 1)]
